// Tensor: elements that are owned, with their type, their shape and where they lie.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>

#include "manyworlds/memory/buffer_view.hpp"
#include "manyworlds/memory/device_view.hpp"
#include "manyworlds/memory/dlpack.hpp"
#include "manyworlds/memory/shape.hpp"
#include "manyworlds/memory/shared_buffer.hpp"

namespace manyworlds::inline v0 {

/// Names the memory that a tensor lies in: the host's, or that of a CUDA device.
struct memory_place {
  static constexpr int host = -1;
  /// The number of the CUDA device, or `host`.
  int device = host;

  [[nodiscard]] constexpr bool is_host() const noexcept { return device == host; }
  friend constexpr bool operator==(memory_place, memory_place) noexcept = default;
};

/// Owns elements in C order: plain memory, memory of a `shared_pool`, device memory, or
/// another framework's. It moves data between programs; it computes nothing.
///
///     mw::tensor x({2, 3}, mw::dtype::float32);  // contents are not set
///     for (float& each : x.as<float>()) each = 1;
///     co_await w.all_reduce(x, mw::sum);
///     mw::tensor y = mw::tensor::copy_of(prompt);
///     mw::dlpack::owned_tensor given = std::move(y).to_dlpack();
///     mw::tensor z = mw::tensor::adopt(given.release());  // shares its memory
///
/// It is movable, and what was moved from is empty. A world's operations take it like a
/// view: its elements and their type travel, its shape does not. On a world of backend
/// `nccl` they take it from device memory as well.
///
/// Lifetime: it must live, and stay unchanged, until an await on an operation that uses
/// it has ended. Plain memory starts at a multiple of 64 bytes.
///
/// Errors: std::invalid_argument, as said at the functions; std::bad_alloc.
class tensor {
 public:
  /// Makes a tensor of no elements, of shape [0] and type uint8.
  tensor() noexcept : shape_(0) {}
  /// Takes plain memory. Contents are not set.
  tensor(class shape of, dtype type);
  /// Takes memory of the pool, which peers on this host copy from without asking. Errors:
  /// those of `shared_pool::allocate`.
  tensor(class shape of, dtype type, shared_pool& pool);
  /// Refers to host memory that `owner` keeps. Errors: std::invalid_argument unless the
  /// shape has the view's number of elements.
  tensor(class shape of, buffer_view memory, std::shared_ptr<void> owner);
  /// Refers to device memory that `owner` keeps, in the order of the view's stream.
  /// Errors: std::invalid_argument unless the shape has the view's number of elements.
  tensor(class shape of, class device_view memory, int device,
         std::shared_ptr<void> owner);

  tensor(tensor&& other) noexcept
      : owner_(std::move(other.owner_)),
        data_(std::exchange(other.data_, nullptr)),
        shape_(std::exchange(other.shape_, 0)),
        stream_(std::exchange(other.stream_, {})),
        place_(std::exchange(other.place_, {})),
        type_(std::exchange(other.type_, dtype::uint8)) {}
  tensor& operator=(tensor&& other) noexcept {
    tensor taken(std::move(other));
    std::swap(owner_, taken.owner_);
    std::swap(data_, taken.data_);
    std::swap(shape_, taken.shape_);
    std::swap(stream_, taken.stream_);
    std::swap(place_, taken.place_);
    std::swap(type_, taken.type_);
    return *this;
  }
  // Compilers print the line, and the reason with it.
  tensor(const tensor&) = delete;  // it owns its elements: std::move it, or copy_of(view)
  tensor& operator=(const tensor&) = delete;
  ~tensor() = default;

  /// Makes a tensor of zeros, in plain memory.
  [[nodiscard]] static tensor zeros(class shape of, dtype type);
  /// Copies host memory. Errors: std::invalid_argument unless the shape has the view's
  /// number of elements.
  [[nodiscard]] static tensor copy_of(const_buffer_view values, class shape of);
  /// Copies host memory into a tensor of one dimension.
  [[nodiscard]] static tensor copy_of(const_buffer_view values) {
    return copy_of(values, values.count());
  }

  /// Takes over a tensor of another framework (`DLManagedTensorVersioned` or
  /// `DLManagedTensor`, official or ours) and shares its memory. Its deleter is called
  /// when this tensor is destroyed, on that thread; at once if it is refused. Work that
  /// writes a device tensor must be on `on` already.
  ///
  /// Errors: std::invalid_argument for null, and for what cannot be written as it is:
  /// strides, another element type than a `dtype`, a tensor that is marked read-only.
  template <dlpack::any_managed_tensor Managed>
  [[nodiscard]] static tensor adopt(Managed* managed, device_stream on = {});
  /// Gives the memory to another framework, without a copy. Hand over `release()` of the
  /// result, which has the layout of `DLManagedTensorVersioned`.
  [[nodiscard]] dlpack::owned_tensor to_dlpack() &&;

  [[nodiscard]] dtype type() const noexcept { return type_; }
  [[nodiscard]] const class shape& shape() const& noexcept { return shape_; }
  [[nodiscard]] class shape shape() const&& noexcept { return shape_; }
  [[nodiscard]] memory_place place() const noexcept { return place_; }
  /// Returns the stream that orders its device memory; none of host memory.
  [[nodiscard]] device_stream stream() const noexcept { return stream_; }
  /// Returns the number of elements, not of bytes.
  [[nodiscard]] std::size_t count() const noexcept { return shape_.elements(); }
  [[nodiscard]] std::size_t size_bytes() const noexcept {
    return count() * size_of(type_);
  }
  [[nodiscard]] bool empty() const noexcept { return count() == 0; }
  [[nodiscard]] void* data() noexcept { return data_; }
  [[nodiscard]] const void* data() const noexcept { return data_; }

  /// Gives it another shape. Errors: std::invalid_argument unless that has as many
  /// elements.
  void reshape(class shape to);

  /// Returns the elements. Errors: std::invalid_argument if they are of another type, or
  /// lie in device memory.
  template <element T>
  [[nodiscard]] std::span<T> as() & {
    return {static_cast<T*>(host_elements(dtype_of_v<T>)), count()};
  }
  template <element T>
  [[nodiscard]] std::span<const T> as() const& {
    return {static_cast<const T*>(host_elements(dtype_of_v<T>)), count()};
  }
  template <element T>
  void as() const&& = delete;  // a temporary is gone before they are read: name it

  /// Returns a view of all elements. Errors: std::invalid_argument if they lie in device
  /// memory.
  [[nodiscard]] buffer_view view() & { return {host_elements(type_), count(), type_}; }
  [[nodiscard]] const_buffer_view view() const& {
    return {host_elements(type_), count(), type_};
  }
  void view() const&& = delete;
  /// Returns a view of all elements, ordered on its stream. Errors: std::invalid_argument
  /// if they lie in host memory.
  [[nodiscard]] class device_view device_view() & {
    return {device_elements(), count(), type_, stream_};
  }
  [[nodiscard]] const_device_view device_view() const& {
    return {device_elements(), count(), type_, stream_};
  }
  void device_view() const&& = delete;

 private:
  /// Throws std::invalid_argument unless it is host memory, and of that type.
  [[nodiscard]] void* host_elements(dtype wanted) const;
  /// Throws std::invalid_argument unless it is device memory.
  [[nodiscard]] void* device_elements() const;
  [[nodiscard]] static tensor adopt_elements(const dlpack::tensor& seen, device_stream on,
                                             std::shared_ptr<void> owner);

  std::shared_ptr<void> owner_;
  void* data_ = nullptr;
  class shape shape_;
  device_stream stream_;
  memory_place place_;
  dtype type_ = dtype::uint8;
};

// ---------------------------------------------------------------------------------------

namespace detail {

[[noreturn]] void refuse_null_tensor();
/// Returns whether the tensors of one operation, of which either may be absent, lie in
/// device memory. Errors: std::invalid_argument if only one of them does.
[[nodiscard]] bool lie_on_device(const tensor* from, const tensor* into);

}  // namespace detail

template <dlpack::any_managed_tensor Managed>
tensor tensor::adopt(Managed* managed, device_stream on) {
  if (managed == nullptr) detail::refuse_null_tensor();
  std::shared_ptr<Managed> owner(managed, dlpack::release());
  const dlpack::tensor seen = dlpack::detail::writable_copy_of(*owner);
  return adopt_elements(seen, on, std::move(owner));
}

}  // namespace manyworlds::inline v0
