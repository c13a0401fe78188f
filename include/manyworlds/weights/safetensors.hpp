// Safetensors: which tensors a file of weights holds, and where in it they lie.
//
// The format is that of github.com/huggingface/safetensors (Apache-2.0): 8 bytes with the
// length of a header, the header in JSON, and the tensors' bytes without a gap.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "manyworlds/detail/config.hpp"
#include "manyworlds/memory/dtype.hpp"
#include "manyworlds/memory/shape.hpp"

namespace manyworlds::inline v0 {

/// Thrown for weights that are damaged or contradict themselves, naming the tensor and
/// what is wrong with it.
class MANYWORLDS_EXPORT weights_error : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// One tensor of a file, as the file's header tells.
struct stored_tensor {
  std::string name;
  /// The type as the file spells it: "BF16".
  std::string type;
  /// The element type, unless the file's type is none: bool and 16-bit integers.
  std::optional<dtype> elements;
  std::size_t element_bytes = 0;
  class shape shape = {};
  /// Where its bytes begin in the file, and how many they are.
  std::uint64_t offset = 0;
  std::uint64_t bytes = 0;
};

/// The header of one file.
///
///     const auto header = mw::safetensors_header::parse(values, file_bytes);
///     const mw::stored_tensor& found = header.at("model.norm.weight");
///     mw::tensor norm(found.shape, found.elements.value());
///
/// Errors: weights_error, as said at the functions; also in a build without
/// nlohmann-json.
class safetensors_header {
 public:
  /// The bytes in front of the header, which hold its length.
  static constexpr std::size_t prefix_bytes = 8;
  /// The longest header, in bytes.
  static constexpr std::uint64_t longest = 100'000'000;

  /// Returns the length of the header that follows `prefix`. Errors: weights_error if it
  /// is longer than allowed, or than the file.
  [[nodiscard]] static std::uint64_t length_in(
      std::span<const std::byte, prefix_bytes> prefix, std::uint64_t file_bytes);
  /// Reads a header, without its prefix. Errors: weights_error for what is no JSON or no
  /// header, for a tensor that is named twice, an unknown type, and more than eight
  /// dimensions. Also where tensors leave a gap or overlap, or have other bytes than
  /// their shape takes and the file has.
  [[nodiscard]] static safetensors_header parse(std::span<const std::byte> header,
                                                std::uint64_t file_bytes);

  /// Returns all tensors, sorted by name.
  [[nodiscard]] const std::vector<stored_tensor>& tensors() const noexcept {
    return tensors_;
  }
  /// Returns the tensor of that name, or null.
  [[nodiscard]] const stored_tensor* find(std::string_view name) const noexcept;
  /// Returns the tensor of that name. Errors: weights_error if there is none.
  [[nodiscard]] const stored_tensor& at(std::string_view name) const;
  /// Returns the free texts of the header, by their names.
  [[nodiscard]] const std::map<std::string, std::string>& metadata() const noexcept {
    return metadata_;
  }

 private:
  std::vector<stored_tensor> tensors_;
  std::map<std::string, std::string> metadata_;
};

/// Reads the index of weights that lie in several files, and returns the name of the file
/// of each tensor. Errors: weights_error for what is no JSON or no index, and for a file
/// that is not in the index's own folder.
[[nodiscard]] std::map<std::string, std::string> parse_weight_index(
    std::span<const std::byte> index);

/// Bytes of a file, and where they belong in the memory of what is read.
struct weight_range {
  std::uint64_t offset = 0;
  std::uint64_t bytes = 0;
  std::uint64_t into = 0;
  friend bool operator==(const weight_range&, const weight_range&) noexcept = default;
};

/// What one of several workers reads of a tensor: its shape, and the ranges in the order
/// of the file. Ranges that touch are one.
///
///     const auto rows = mw::weight_slice::split(stored, 0, w.rank(), w.size());
///     const auto columns = mw::weight_slice::split(stored, 1, w.rank(), w.size());
///     mw::tensor part(columns.shape(), stored.elements.value());
///
/// Errors: weights_error, as said at the functions.
class weight_slice {
 public:
  /// Takes all of it.
  [[nodiscard]] static weight_slice whole(const stored_tensor& of);
  /// Takes part `part` of `parts` along a dimension. Errors: weights_error if there is no
  /// such dimension or part, or the dimension does not divide.
  [[nodiscard]] static weight_slice split(const stored_tensor& of, std::size_t dimension,
                                          std::int64_t part, std::int64_t parts);
  /// Takes that part of each piece of a tensor in which several stand one behind another
  /// along the dimension, as query, key and value do: `pieces` are their lengths. The
  /// result has the parts behind one another. Errors: those of `split`, for any piece;
  /// weights_error if the pieces are not as long as the dimension together.
  [[nodiscard]] static weight_slice split_pieces(const stored_tensor& of,
                                                 std::size_t dimension,
                                                 std::span<const std::int64_t> pieces,
                                                 std::int64_t part, std::int64_t parts);

  [[nodiscard]] const class shape& shape() const& noexcept { return shape_; }
  [[nodiscard]] const std::vector<weight_range>& ranges() const& noexcept {
    return ranges_;
  }
  void ranges() const&& = delete;
  /// Returns the number of bytes that the part takes.
  [[nodiscard]] std::uint64_t bytes() const noexcept { return bytes_; }
  /// Returns whether it was made of that tensor, or of one that lies in the same place of
  /// its file.
  [[nodiscard]] bool is_of(const stored_tensor& other) const noexcept;

 private:
  explicit weight_slice(const stored_tensor& of);
  void add(weight_range range);

  std::uint64_t tensor_offset_ = 0;
  std::uint64_t tensor_bytes_ = 0;
  std::size_t element_bytes_ = 0;
  std::uint64_t bytes_ = 0;
  class shape shape_;
  std::vector<weight_range> ranges_;
};

}  // namespace manyworlds::inline v0
