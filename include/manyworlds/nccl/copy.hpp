// Copy: bytes between host and device memory, awaited.
#pragma once

#include <cstddef>
#include <stdexcept>
#include <string>

#include "manyworlds/detail/foreign_continuation.hpp"
#include "manyworlds/detail/stream_wait.hpp"
#include "manyworlds/memory/buffer_view.hpp"
#include "manyworlds/memory/device_view.hpp"

namespace manyworlds::inline v0 {

namespace detail::nccl {

/// Says what to copy. A view of host memory has no stream.
struct copy_plan {
  void* to = nullptr;
  const void* from = nullptr;
  std::size_t bytes = 0;
  device_stream on;
  /// What is on this stream now comes first as well; may be none.
  device_stream after;
  bool to_device = false;
  bool from_device = false;
};

inline void check_sizes(std::size_t to, std::size_t from) {
  if (to == from) return;
  throw std::invalid_argument("copy: " + std::to_string(from) +
                              " bytes do not go into a view of " + std::to_string(to));
}

}  // namespace detail::nccl

namespace detail {

class copy_awaiter : public stream_wait {
 public:
  explicit copy_awaiter(const detail::nccl::copy_plan& plan) noexcept
      : stream_wait(plan.on), plan_(plan) {}

  bool await_start(continuation& waiter) {
    if (plan_.bytes == 0) return false;
    begin(waiter, &plan_);
    return true;
  }

 private:
  detail::nccl::copy_plan plan_;
};

/// Stands for a copy that has not begun.
class MANYWORLDS_MUST_AWAIT copy_awaitable {
 public:
  explicit copy_awaitable(const detail::nccl::copy_plan& plan) noexcept : plan_(plan) {}
  awaitable_by_all<copy_awaiter> operator co_await() const noexcept {
    return awaitable_by_all<copy_awaiter>(plan_);
  }

 private:
  detail::nccl::copy_plan plan_;
};

}  // namespace detail

/// `co_await copy(to, from)`: begins after what is on the device view's stream, and ends
/// when `to` has the bytes. Between two streams of the same or of two devices it is
/// ordered on that of `to`, and begins after what is on that of `from` now. Element types
/// may differ.
///
/// Host memory should be pinned (`pinned_buffer`). With other memory CUDA itself waits
/// for each piece: such a copy begins when its stream has got there, and goes in slices
/// of 256 KiB, between which other copies get their turn. What comes onto that stream
/// between two slices holds up this reactor's copies until it is done, not its worlds.
///
/// A thread of the reactor's calls CUDA (see `stream_wait`). What others, or an
/// operation of a world, enqueue on the stream while a copy is being started may come
/// before it: await the copy first. On cudaStreamPerThread the thread that awaits the
/// copy enqueues everything; with memory that is not pinned this takes as long as the
/// copy does.
///
/// The memory belongs to the copy until the await ends. A cancelled copy ends after the
/// slice it was in, when nothing touches the memory.
///
/// Errors: the call throws std::invalid_argument if the sizes in bytes differ. The await
/// throws it for no stream, and for host memory that is said to be a device's;
/// device_error where CUDA refuses or fails; std::logic_error where no reactor runs.
inline detail::copy_awaitable copy(device_view to, const_buffer_view from) {
  detail::nccl::check_sizes(to.size_bytes(), from.size_bytes());
  return detail::copy_awaitable(
      {to.data(), from.data(), to.size_bytes(), to.stream(), {}, true, false});
}

/// Copies from a device to host memory. Errors: those of the copy above.
inline detail::copy_awaitable copy(buffer_view to, const_device_view from) {
  detail::nccl::check_sizes(to.size_bytes(), from.size_bytes());
  return detail::copy_awaitable(
      {to.data(), from.data(), to.size_bytes(), from.stream(), {}, false, true});
}

/// Copies within a device, or between two. Errors: those of the copy above.
inline detail::copy_awaitable copy(device_view to, const_device_view from) {
  detail::nccl::check_sizes(to.size_bytes(), from.size_bytes());
  return detail::copy_awaitable(
      {to.data(), from.data(), to.size_bytes(), to.stream(), from.stream(), true, true});
}

}  // namespace manyworlds::inline v0
