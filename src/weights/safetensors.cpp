#include "manyworlds/weights/safetensors.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <numeric>
#include <set>
#include <utility>

#if __has_include(<nlohmann/json.hpp>)
#include <nlohmann/json.hpp>
#define MANYWORLDS_HAS_JSON 1
#endif

#include "manyworlds/detail/assertion.hpp"

namespace manyworlds::inline v0 {

namespace {

struct stored_type {
  std::string_view name;
  std::size_t bytes;
  std::optional<dtype> elements;
};

constexpr std::array stored_types{
    stored_type{"BOOL", 1, std::nullopt},
    stored_type{"U8", 1, dtype::uint8},
    stored_type{"I8", 1, dtype::int8},
    stored_type{"F8_E5M2", 1, dtype::float8_e5m2},
    stored_type{"F8_E4M3", 1, dtype::float8_e4m3},
    stored_type{"I16", 2, std::nullopt},
    stored_type{"U16", 2, std::nullopt},
    stored_type{"F16", 2, dtype::float16},
    stored_type{"BF16", 2, dtype::bfloat16},
    stored_type{"I32", 4, dtype::int32},
    stored_type{"U32", 4, dtype::uint32},
    stored_type{"F32", 4, dtype::float32},
    stored_type{"F64", 8, dtype::float64},
    stored_type{"I64", 8, dtype::int64},
    stored_type{"U64", 8, dtype::uint64},
};

[[noreturn]] void refuse_weights(std::string_view where, const std::string& why) {
  throw weights_error(fmt::format("{}: {}", where, why));
}

#if MANYWORLDS_HAS_JSON

using nlohmann::json;

/// Parses an object of which no name stands twice, on the first level or in one of its
/// objects.
json parse_object(std::span<const std::byte> text, const char* what) {
  const auto* const begin = reinterpret_cast<const char*>(text.data());
  std::set<std::string> names;
  std::set<std::string> inner;
  std::string twice;
  const auto note_name = [&](int depth, json::parse_event_t event, json& parsed) {
    if (event != json::parse_event_t::key || depth > 2) return true;
    const auto& name = parsed.get_ref<const std::string&>();
    if (depth == 1) inner.clear();
    if (!(depth == 1 ? names : inner).insert(name).second) twice = name;
    return true;
  };
  json all;
  try {
    all = json::parse(begin, begin + text.size(), note_name);
  } catch (const json::exception& e) {
    refuse_weights(what, fmt::format("no JSON: {}", e.what()));
  }
  if (!all.is_object()) refuse_weights(what, "its JSON is no object");
  if (!twice.empty())
    refuse_weights(what, fmt::format("\"{}\" stands in it twice", twice));
  return all;
}

std::map<std::string, std::string> texts_of(const json& object, const char* what) {
  if (!object.is_object()) refuse_weights(what, "is no object of texts");
  std::map<std::string, std::string> all;
  for (const auto& [name, value] : object.items()) {
    if (!value.is_string()) refuse_weights(what, fmt::format("\"{}\" is no text", name));
    all.emplace(name, value.get<std::string>());
  }
  return all;
}

class shape shape_of(const std::string& name, const json& lengths) {
  if (!lengths.is_array()) refuse_weights(name, "its shape is no list");
  std::vector<std::int64_t> all;
  for (const json& length : lengths) {
    constexpr std::uint64_t most = std::uint64_t{1} << 62;
    if (!length.is_number_unsigned() || length.get<std::uint64_t>() > most)
      refuse_weights(name, "its shape has a length that is no number");
    all.push_back(static_cast<std::int64_t>(length.get<std::uint64_t>()));
  }
  try {
    return shape(std::span<const std::int64_t>(all));
  } catch (const std::invalid_argument& e) {
    refuse_weights(name, e.what());
  }
}

std::pair<std::uint64_t, std::uint64_t> offsets_of(const std::string& name,
                                                   const json& offsets) {
  const bool are_two = offsets.is_array() && offsets.size() == 2 &&
                       offsets[0].is_number_unsigned() && offsets[1].is_number_unsigned();
  if (!are_two) refuse_weights(name, "its offsets are no two numbers");
  return {offsets[0].get<std::uint64_t>(), offsets[1].get<std::uint64_t>()};
}

/// Reads one tensor; its offset is still counted from the end of the header.
stored_tensor tensor_from(const std::string& name, const json& described) {
  if (!described.is_object() || !described.contains("dtype") ||
      !described.contains("shape") || !described.contains("data_offsets")) {
    refuse_weights(name, "it has no dtype, shape and data_offsets");
  }
  stored_tensor found;
  found.name = name;
  if (!described["dtype"].is_string()) refuse_weights(name, "its dtype is no text");
  found.type = described["dtype"].get<std::string>();
  const auto* const type =
      std::ranges::find(stored_types, found.type, &stored_type::name);
  if (type == stored_types.end())
    refuse_weights(name, fmt::format("its dtype \"{}\" is not known", found.type));
  found.elements = type->elements;
  found.element_bytes = type->bytes;
  found.shape = shape_of(name, described["shape"]);
  const auto [begin, end] = offsets_of(name, described["data_offsets"]);
  if (end < begin) refuse_weights(name, "it ends before it begins");
  found.offset = begin;
  found.bytes = end - begin;
  // A shape has at most PTRDIFF_MAX elements, so that no product overflows below.
  const std::uint64_t elements = found.shape.elements();
  if (found.bytes % found.element_bytes != 0 ||
      found.bytes / found.element_bytes != elements) {
    refuse_weights(name, fmt::format("its shape {} of {} does not take its {} bytes",
                                     found.shape.text(), found.type, found.bytes));
  }
  return found;
}

/// Throws unless the tensors fill the file from the first byte to the last, one behind
/// the other.
void check_places(const std::vector<stored_tensor>& tensors, std::uint64_t data_bytes) {
  std::vector<const stored_tensor*> by_place;
  for (const stored_tensor& each : tensors) by_place.push_back(&each);
  std::ranges::sort(by_place, {}, [](const stored_tensor* t) {
    return std::pair(t->offset, t->bytes);
  });
  std::uint64_t end = 0;
  for (const stored_tensor* each : by_place) {
    if (each->offset != end) {
      refuse_weights(each->name,
                     fmt::format("it begins at byte {}, and what is before it ends at {}",
                                 each->offset, end));
    }
    end += each->bytes;
    if (end < each->bytes || end > data_bytes)
      refuse_weights(each->name, "it ends behind the end of the file");
  }
  if (end != data_bytes) {
    refuse_weights("safetensors", fmt::format("{} bytes stand behind the last tensor",
                                              data_bytes - end));
  }
}

#endif

void check_dimension(const stored_tensor& of, std::size_t dimension) {
  if (dimension < of.shape.dimensions()) return;
  refuse_weights(of.name,
                 fmt::format("shape {} has no dimension {}", of.shape.text(), dimension));
}

}  // namespace

std::uint64_t safetensors_header::length_in(
    std::span<const std::byte, prefix_bytes> prefix, std::uint64_t file_bytes) {
  std::uint64_t length = 0;
  std::memcpy(&length, prefix.data(), sizeof length);
  if (length > longest) {
    refuse_weights(
        "safetensors",
        fmt::format("a header of {} bytes: at most {} are allowed", length, longest));
  }
  if (file_bytes < prefix_bytes || length > file_bytes - prefix_bytes)
    refuse_weights("safetensors", "the file ends within its header");
  return length;
}

safetensors_header safetensors_header::parse(
    [[maybe_unused]] std::span<const std::byte> header,
    [[maybe_unused]] std::uint64_t file_bytes) {
#if MANYWORLDS_HAS_JSON
  const std::uint64_t front = prefix_bytes + header.size();
  if (header.size() > longest || front > file_bytes)
    refuse_weights("safetensors", "the file ends within its header");
  if (header.empty() || header[0] != std::byte{'{'})
    refuse_weights("safetensors", "its header does not begin with a brace");
  safetensors_header made;
  const json described = parse_object(header, "safetensors");
  for (const auto& [name, value] : described.items()) {
    if (name == "__metadata__") {
      made.metadata_ = texts_of(value, "__metadata__");
    } else {
      made.tensors_.push_back(tensor_from(name, value));
    }
  }
  std::ranges::sort(made.tensors_, {}, &stored_tensor::name);
  check_places(made.tensors_, file_bytes - front);
  for (stored_tensor& each : made.tensors_) each.offset += front;
  return made;
#else
  refuse_weights("safetensors", "this build has no nlohmann-json to read it with");
#endif
}

const stored_tensor* safetensors_header::find(std::string_view name) const noexcept {
  const auto at = std::ranges::lower_bound(tensors_, name, {}, &stored_tensor::name);
  return at != tensors_.end() && at->name == name ? &*at : nullptr;
}

const stored_tensor& safetensors_header::at(std::string_view name) const {
  const stored_tensor* const found = find(name);
  if (found == nullptr) refuse_weights(name, "there is no such tensor");
  return *found;
}

std::map<std::string, std::string> parse_weight_index(
    [[maybe_unused]] std::span<const std::byte> index) {
#if MANYWORLDS_HAS_JSON
  const json described = parse_object(index, "index of weights");
  const auto map = described.find("weight_map");
  if (map == described.end()) refuse_weights("index of weights", "it has no weight_map");
  auto files = texts_of(*map, "weight_map");
  for (const auto& [name, file] : files) {
    if (file.empty() || file == "." || file == ".." ||
        file.find('/') != std::string::npos || file.find('\0') != std::string::npos) {
      refuse_weights(name, "its file does not lie beside the index");
    }
  }
  return files;
#else
  refuse_weights("index of weights", "this build has no nlohmann-json to read it with");
#endif
}

void weight_slice::add(weight_range range) {
  if (range.bytes == 0) return;
  bytes_ += range.bytes;
  if (!ranges_.empty()) {
    weight_range& last = ranges_.back();
    MW_ASSERT(last.offset + last.bytes <= range.offset,
              "ranges are added in the order of the file");
    if (last.offset + last.bytes == range.offset &&
        last.into + last.bytes == range.into) {
      last.bytes += range.bytes;
      return;
    }
  }
  // A file that says so may have a row for each of its bytes.
  constexpr std::size_t most_ranges = std::size_t{1} << 24;
  if (ranges_.size() == most_ranges)
    refuse_weights("weights", "a part of a tensor in more than 16 million places");
  ranges_.push_back(range);
}

weight_slice::weight_slice(const stored_tensor& of)
    : tensor_offset_(of.offset),
      tensor_bytes_(of.bytes),
      element_bytes_(of.element_bytes) {}

bool weight_slice::is_of(const stored_tensor& other) const noexcept {
  return tensor_offset_ == other.offset && tensor_bytes_ == other.bytes &&
         element_bytes_ == other.element_bytes;
}

weight_slice weight_slice::whole(const stored_tensor& of) {
  weight_slice made(of);
  made.shape_ = of.shape;
  made.add({of.offset, of.bytes, 0});
  return made;
}

weight_slice weight_slice::split(const stored_tensor& of, std::size_t dimension,
                                 std::int64_t part, std::int64_t parts) {
  check_dimension(of, dimension);
  const std::array<std::int64_t, 1> one{of.shape[dimension]};
  return split_pieces(of, dimension, one, part, parts);
}

weight_slice weight_slice::split_pieces(const stored_tensor& of, std::size_t dimension,
                                        std::span<const std::int64_t> pieces,
                                        std::int64_t part, std::int64_t parts) {
  check_dimension(of, dimension);
  if (parts <= 0 || part < 0 || part >= parts)
    refuse_weights(of.name, fmt::format("there is no part {} of {}", part, parts));
  std::int64_t whole = 0;
  for (const std::int64_t piece : pieces) {
    if (piece < 0 || piece > of.shape[dimension] - whole || piece % parts != 0) {
      refuse_weights(of.name,
                     fmt::format("a piece of {} of dimension {} of shape {} does "
                                 "not divide into {}",
                                 piece, dimension, of.shape.text(), parts));
    }
    whole += piece;
  }
  if (whole != of.shape[dimension]) {
    refuse_weights(of.name,
                   fmt::format("its pieces are {} long together, and dimension {} "
                               "of shape {} is not",
                               whole, dimension, of.shape.text()));
  }
  weight_slice made(of);
  std::vector<std::int64_t> lengths(of.shape.lengths().begin(), of.shape.lengths().end());
  lengths[dimension] /= parts;
  made.shape_ = decltype(made.shape_)(std::span<const std::int64_t>(lengths));
  if (of.bytes == 0) return made;
  std::uint64_t rows = 1;
  for (std::size_t i = 0; i < dimension; ++i)
    rows *= static_cast<std::uint64_t>(of.shape[i]);
  // The bytes of one step along the dimension.
  const std::uint64_t step =
      of.bytes / rows / static_cast<std::uint64_t>(of.shape[dimension]);
  std::uint64_t from = of.offset;
  std::uint64_t into = 0;
  for (std::uint64_t row = 0; row < rows; ++row) {
    for (const std::int64_t piece : pieces) {
      const std::uint64_t bytes = static_cast<std::uint64_t>(piece) * step;
      const std::uint64_t each = bytes / static_cast<std::uint64_t>(parts);
      made.add({from + each * static_cast<std::uint64_t>(part), each, into});
      from += bytes;
      into += each;
    }
  }
  MW_ASSERT(from == of.offset + of.bytes, "the rows of a tensor are all of it");
  return made;
}

}  // namespace manyworlds::inline v0
