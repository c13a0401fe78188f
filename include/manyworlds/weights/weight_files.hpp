// Weight files: the weights of a model, in one file or in many, of which each worker
// reads its part.
#pragma once

#include <cstddef>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "manyworlds/address.hpp"
#include "manyworlds/coro/task.hpp"
#include "manyworlds/memory/buffer_view.hpp"
#include "manyworlds/memory/tensor.hpp"
#include "manyworlds/weights/safetensors.hpp"

namespace manyworlds::inline v0 {

class world;

/// The tensors of all files of a model, by name.
///
///     const auto weights = co_await mw::weight_files::open("/models/llama");
///     mw::tensor norm = co_await weights.load("norm.weight");
///     const mw::stored_tensor& up = weights.at("mlp.up.weight");
///     const auto rows = mw::weight_slice::split(up, 0, w.rank(), w.size());
///     mw::tensor mine = co_await weights.load("mlp.up.weight", rows);
///     co_await weights.load_into(mine, "mlp.up.weight", rows);  // or on a device
///     co_await weights.load_once(w, norm, "norm.weight");  // one of each host reads
///
/// A part that lies in one piece is read where it belongs. Pieces that lie near to each
/// other, as columns do, are read together and copied apart. No request is longer than 1
/// MiB, and some are under way at once. Each worker reads its part by itself; workers of
/// one host share what its kernel has read before. Files of safetensors that were
/// presharded are files like others: each worker opens its own.
///
/// Thread: any. Lifetime: it stays where it is while a load is under way, and the memory
/// of `load_into` stays with it. A cancelled load ends when the requests that are under
/// way have ended.
///
/// Errors: weights_error naming file and tensor, as said at the functions; file_error if
/// a file cannot be opened or read, or is shorter than it was; std::logic_error where the
/// task does not live on a reactor.
class weight_files {
 public:
  /// Opens one file of safetensors, an index (`*.json`) with the files that it names, or
  /// a folder. In a folder its index counts (`*.safetensors.index.json`), or else all
  /// `*.safetensors`. Headers are read and checked; each file stays open.
  ///
  /// Errors: those of the class; weights_error for a header or an index that breaks a
  /// rule, a tensor that its file lacks or two files have, a folder without weights, and
  /// one with several indexes.
  [[nodiscard]] static task<weight_files> open(std::string path);

  weight_files(weight_files&&) noexcept;
  weight_files& operator=(weight_files&&) noexcept;
  ~weight_files();

  /// Returns all names, sorted.
  [[nodiscard]] std::vector<std::string> names() const;
  /// Returns the tensor of that name as its file has it, or null.
  [[nodiscard]] const stored_tensor* find(std::string_view name) const noexcept;
  /// Returns the tensor of that name. Errors: weights_error if there is none.
  [[nodiscard]] const stored_tensor& at(std::string_view name) const;
  /// Returns the path of the file that has it. Errors: those of `at`.
  [[nodiscard]] const std::string& file_of(std::string_view name) const;

  /// Reads a tensor into plain host memory. Errors: those of the class; weights_error if
  /// there is none, or its type is no `dtype`.
  [[nodiscard]] task<tensor> load(std::string_view name) const;
  /// Reads a part of a tensor. Errors: those of the other overload; weights_error if the
  /// part was made of another tensor.
  [[nodiscard]] task<tensor> load(std::string_view name, weight_slice part) const;
  /// Reads a tensor into memory of the caller, such as a tensor of a `shared_pool`, or
  /// pinned memory. Its elements are those of the file, or bytes: a type that is no
  /// `dtype` is read as bytes. Errors: those of `load`; weights_error if the memory has
  /// another size or type.
  [[nodiscard]] task<void> load_into(buffer_view memory, std::string_view name) const;
  /// Reads a part of a tensor into memory of the caller. Errors: those of the overloads
  /// above.
  [[nodiscard]] task<void> load_into(buffer_view memory, std::string_view name,
                                     weight_slice part) const;
  /// Reads a tensor, or a part of one, into a tensor that lies in host or device memory.
  /// What goes to a device passes through `staging`, host memory of 1 MiB or more that is
  /// the load's until the await ends: a `pinned_buffer` is copied from at full speed, and
  /// each further MiB, up to eight, lets one more request be under way. Without it the
  /// load takes plain memory of its own.
  ///
  /// Errors: those of the overloads above; std::invalid_argument for less staging memory;
  /// device_error.
  [[nodiscard]] task<void> load_into(tensor& memory, std::string_view name,
                                     buffer_view staging = {}) const;
  [[nodiscard]] task<void> load_into(tensor& memory, std::string_view name,
                                     weight_slice part, buffer_view staging = {}) const;
  /// Reads a tensor that all members of the world need, once for each host: the lowest
  /// rank of a host reads it and sends it to the others there, which copy it from its
  /// memory. All members call this in the same order, as a collective. Take `memory` out
  /// of a `shared_pool` where members may not read each other's memory.
  ///
  /// It may lie on a device; the bytes come through host memory then. The messages have
  /// the lane `on`. Lifetime: world and memory outlive the await. Errors: those of
  /// `load_into`; weights_error at the others of the host, with the text of the one that
  /// could not read it; those of the world's sends and receives.
  [[nodiscard]] task<void> load_once(world& w, tensor& memory, std::string name,
                                     lane on = {}) const;

 private:
  struct file;
  struct place {
    const file* in = nullptr;
    const stored_tensor* what = nullptr;
  };

  weight_files();
  [[nodiscard]] static task<std::unique_ptr<file>> open_file(std::string path);
  [[nodiscard]] static task<weight_files> open_all(std::vector<std::string> paths);
  [[nodiscard]] static task<weight_files> open_index(std::string path);
  /// Takes all tensors of a file.
  void take(std::unique_ptr<file> from);
  /// Takes one that the index names.
  void take_named(const file& from, const std::string& name);
  [[nodiscard]] const place& place_of(std::string_view name) const;
  /// Returns where it is. Errors: weights_error unless that part of it fits memory of
  /// this size and type.
  [[nodiscard]] const place& fitting_place(std::string_view name,
                                           const weight_slice& part, std::size_t bytes,
                                           dtype type) const;

  std::vector<std::unique_ptr<file>> files_;
  std::map<std::string_view, place, std::less<>> places_;
};

}  // namespace manyworlds::inline v0
