#include "manyworlds/memory/dlpack.hpp"

#include <array>
#include <cstdint>
#include <limits>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "manyworlds/detail/assertion.hpp"
#include "memory/dlpack_tensor.hpp"

namespace manyworlds::inline v0::dlpack {

namespace {

struct coded_type {
  dtype type;
  std::uint8_t code;
  std::uint8_t bits;
};

// The codes are those of DLDataTypeCode. Its kDLFloat8_e4m3 (8) has infinities and is not
// NCCL's e4m3, which is kDLFloat8_e4m3fn (10).
constexpr std::array<coded_type, dtype_count> coded_types{{
    {dtype::int8, 0, 8},
    {dtype::int32, 0, 32},
    {dtype::int64, 0, 64},
    {dtype::uint8, 1, 8},
    {dtype::uint32, 1, 32},
    {dtype::uint64, 1, 64},
    {dtype::float16, 2, 16},
    {dtype::float32, 2, 32},
    {dtype::float64, 2, 64},
    {dtype::bfloat16, 4, 16},
    {dtype::float8_e4m3, 10, 8},
    {dtype::float8_e5m2, 12, 8},
}};

constexpr std::uint8_t opaque_handle = 3;
/// The code of kDLFloat6_e2m3fn; the other floats of less than a byte follow it.
constexpr std::uint8_t first_narrow_float = 15;

constexpr std::int32_t cpu = 1;
constexpr std::int32_t pinned_by_cuda = 3;
constexpr std::int32_t pinned_by_rocm = 11;

// Frameworks stay far below this; a loop must not follow a corrupt number.
constexpr std::int32_t most_dimensions = 1024;

std::optional<dtype> element_type(data_type type) {
  for (const auto& known : coded_types) {
    if (known.code == type.code && known.bits == type.bits) return known.type;
  }
  return std::nullopt;
}

data_type coded(dtype type) {
  for (const auto& known : coded_types) {
    if (known.type == type) return {known.code, known.bits, 1};
  }
  throw std::invalid_argument("dlpack: no such element type");
}

std::string device_name(device where) {
  static constexpr std::array<const char*, 19> names{
      "",       "cpu",    "cuda",    "cuda_host", "opencl",    "",        "",
      "vulkan", "metal",  "vpi",     "rocm",      "rocm_host", "ext_dev", "cuda_managed",
      "oneapi", "webgpu", "hexagon", "maia",      "trn"};
  const auto type = static_cast<std::uint32_t>(where.device_type);
  const bool known = type < names.size() && names[type][0] != '\0';
  const auto name = known ? std::string{names[type]}
                          : "device type " + std::to_string(where.device_type);
  return name + ":" + std::to_string(where.device_id);
}

std::string type_name(data_type type) {
  static constexpr std::array<const char*, 7> families{
      "int", "uint", "float", "handle", "bfloat", "complex", "bool"};
  auto name = [&]() -> std::string {
    if (const auto ours = element_type(type)) return std::string{name_of(*ours)};
    if (type.code < families.size())
      return families[type.code] + std::to_string(type.bits);
    return "type code " + std::to_string(type.code) + " of " + std::to_string(type.bits) +
           " bits";
  }();
  return type.lanes == 1 ? name : name + " x " + std::to_string(type.lanes) + " lanes";
}

std::string listed(const std::int64_t* values, std::int32_t count) {
  if (count > 0 && values == nullptr) return "null";
  std::string text = "[";
  for (std::int32_t i = 0; i < count; ++i) {
    text += (i == 0 ? "" : ", ") + std::to_string(values[i]);
  }
  return text + "]";
}

std::string described(const tensor& t) {
  if (t.ndim < 0 || t.ndim > most_dimensions) {
    return "dlpack tensor of " + std::to_string(t.ndim) + " dimensions";
  }
  return "dlpack tensor of shape " + listed(t.shape, t.ndim) + ", strides " +
         (t.strides == nullptr ? "null" : listed(t.strides, t.ndim)) + ", " +
         type_name(t.dtype) + ", on " + device_name(t.device);
}

[[noreturn]] void refuse(const tensor& t, const std::string& reason) {
  throw std::invalid_argument(described(t) + ": " + reason);
}

/// Counts the elements of a shape; nothing when a number is negative or the product does
/// not fit.
std::optional<std::size_t> elements(std::span<const std::int64_t> shape) {
  constexpr std::uint64_t most = PTRDIFF_MAX;
  std::uint64_t product = 1;
  bool fits = true;
  for (const auto extent : shape) {
    if (extent < 0) return std::nullopt;
    if (extent == 0) return 0;
  }
  for (const auto extent : shape) {
    const auto factor = static_cast<std::uint64_t>(extent);
    fits = fits && factor <= most / product;
    product = fits ? product * factor : product;
  }
  return fits ? std::optional<std::size_t>{product} : std::nullopt;
}

bool in_c_order(const tensor& t) {
  if (t.strides == nullptr) return true;
  std::int64_t expected = 1;
  for (std::int32_t i = t.ndim - 1; i >= 0; --i) {
    // A dimension of one is never stepped along, so its stride may be anything.
    if (t.shape[i] != 1 && t.strides[i] != expected) return false;
    expected *= t.shape[i];
  }
  return true;
}

struct exported {
  managed_tensor_versioned managed;
  std::vector<std::int64_t> shape;
  std::vector<std::int64_t> strides;
  std::shared_ptr<const void> keep_alive;
};

}  // namespace

namespace detail {

owned_tensor export_elements(const plain_elements& view, device where,
                             std::shared_ptr<const void> keep_alive,
                             std::span<const std::int64_t> shape, std::uint64_t flags) {
  auto node = std::make_unique<exported>();
  node->shape.assign(shape.begin(), shape.end());
  if (shape.empty()) node->shape = {static_cast<std::int64_t>(view.count)};
  if (elements(node->shape) != view.count) {
    throw std::invalid_argument(
        "dlpack export: shape " +
        listed(node->shape.data(), static_cast<std::int32_t>(node->shape.size())) +
        " does not have the view's " + std::to_string(view.count) + " elements");
  }
  node->strides.resize(node->shape.size());
  std::int64_t stride = 1;
  for (auto i = node->shape.size(); i-- > 0;) {
    node->strides[i] = stride;
    if (node->shape[i] > 1 && view.count != 0) stride *= node->shape[i];
  }
  MW_ASSERT(view.count == 0 || static_cast<std::size_t>(stride) == view.count,
            "the strides of a tensor in C order end at its number of elements");
  node->keep_alive = std::move(keep_alive);
  node->managed = {{major_version, minor_version},
                   node.get(),
                   [](managed_tensor_versioned* self) {
                     delete static_cast<exported*>(self->manager_ctx);
                   },
                   flags,
                   {view.data, where, static_cast<std::int32_t>(node->shape.size()),
                    coded(view.type), node->shape.data(), node->strides.data(), 0}};
  return owned_tensor{&node.release()->managed};
}

}  // namespace detail

owned_tensor export_tensor(buffer_view view, std::shared_ptr<void> keep_alive,
                           std::span<const std::int64_t> shape) {
  return detail::export_elements({view.data(), view.count(), view.type()}, {cpu, 0},
                                 std::move(keep_alive), shape, 0);
}

owned_tensor export_read_only(const_buffer_view view,
                              std::shared_ptr<const void> keep_alive,
                              std::span<const std::int64_t> shape) {
  return detail::export_elements(
      {const_cast<void*>(view.data()), view.count(), view.type()}, {cpu, 0},
      std::move(keep_alive), shape, flag_read_only);
}

namespace detail {

void refuse_version(version seen) {
  throw std::invalid_argument("dlpack tensor of version " + std::to_string(seen.major) +
                              "." + std::to_string(seen.minor) +
                              ": only major version 1 can be read");
}

void refuse_writing(const tensor& source) {
  refuse(source, "is read-only and cannot be received into");
}

namespace {

/// Returns where the elements lie, and how many they are. Checks all but their type.
plain_elements place_of(const tensor& source, const wanted_view& wanted) {
  if (source.ndim > 0 && source.shape == nullptr) refuse(source, "has no shape");
  if (!wanted.misplaced.empty()) refuse(source, wanted.misplaced);
  const auto count = elements({source.shape, static_cast<std::size_t>(source.ndim)});
  if (!count) refuse(source, "its shape is no number of elements");
  if (*count == 0) return {nullptr, 0, dtype::uint8};
  if (!in_c_order(source)) refuse(source, "is not contiguous; make a contiguous copy");
  if (source.data == nullptr) refuse(source, "has elements, but no data");
  // A sum that wraps may be null, which stands for no memory.
  if (source.byte_offset > UINTPTR_MAX - reinterpret_cast<std::uintptr_t>(source.data))
    refuse(source, "its byte offset leads beyond the end of memory");
  return {static_cast<std::byte*>(source.data) + source.byte_offset, *count,
          dtype::uint8};
}

/// Checks the number of dimensions. Called before anything of a shape is read.
void check_dimensions(const tensor& source) {
  if (source.ndim < 0 || source.ndim > most_dimensions) {
    refuse(source, "no such number of dimensions");
  }
}

/// Returns the bits that one element takes, or 0 if the tensor does not say it.
std::uint64_t stride_in_bits(data_type type, packing how) {
  const std::uint64_t bits = type.bits;
  const std::uint64_t whole = bits * type.lanes;
  if (bits >= 8 || (whole % 8 == 0 && how != packing::padded)) return (whole + 7) / 8 * 8;
  if (how == packing::padded) return std::uint64_t{8} * type.lanes;
  // Floats of less than a byte came with the rule that they are packed.
  const bool is_float = type.code >= first_narrow_float;
  return how == packing::packed || is_float ? whole : 0;
}

}  // namespace

plain_elements import_elements(const tensor& source, const wanted_view& wanted) {
  check_dimensions(source);
  if (source.ndim > 0 && source.shape == nullptr) refuse(source, "has no shape");
  const auto type = element_type(source.dtype);
  if (!type || source.dtype.lanes != 1) {
    refuse(source, std::string(type ? "vector lanes are not supported"
                                    : "no element type of messages") +
                       "; pass it on as bytes, by " + wanted.byte_functions);
  }
  plain_elements found = place_of(source, wanted);
  found.type = *type;
  return found;
}

plain_elements import_all_bytes(const tensor& source, packing how,
                                const wanted_view& wanted) {
  check_dimensions(source);
  const data_type type = source.dtype;
  if (type.bits == 0 || type.lanes == 0) refuse(source, "its elements have no size");
  if (type.code == opaque_handle) refuse(source, "a handle means nothing elsewhere");
  plain_elements found = place_of(source, wanted);
  const std::uint64_t each = stride_in_bits(type, how);
  if (each == 0) {
    refuse(source,
           "it does not say whether elements of less than a byte are packed: give it as "
           "a tensor of DLPack 1.1");
  }
  constexpr std::uint64_t most = std::uint64_t{PTRDIFF_MAX} * 8;
  if (found.count > most / each) refuse(source, "its shape is no number of elements");
  // It is done in two parts: the sum of the bits and their rounding may not fit.
  MW_ASSERT(found.data || found.count == 0, "elements have memory");
  const std::uint64_t bits = found.count * each;
  found.count = static_cast<std::size_t>(bits / 8 + (bits % 8 != 0 ? 1 : 0));
  return found;
}

namespace {

wanted_view in_host_memory(const tensor& source) {
  const auto where = source.device.device_type;
  const bool is_host = where == cpu || where == pinned_by_cuda || where == pinned_by_rocm;
  return {is_host ? "" : "is not in host memory; copy it there first",
          "readable_bytes() or writable_bytes()"};
}

}  // namespace

buffer_view import_tensor(const tensor& source) {
  const auto found = import_elements(source, in_host_memory(source));
  return {found.data, found.count, found.type};
}

buffer_view import_bytes(const tensor& source, packing how) {
  const auto found = import_all_bytes(source, how, in_host_memory(source));
  return {found.data, found.count, found.type};
}

}  // namespace detail

}  // namespace manyworlds::inline v0::dlpack
