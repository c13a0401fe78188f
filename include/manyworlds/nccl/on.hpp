// On: awaiting the caller's own work on a CUDA stream.
#pragma once

#include "manyworlds/detail/foreign_continuation.hpp"
#include "manyworlds/detail/stream_wait.hpp"

namespace manyworlds::inline v0 {

namespace detail {

class stream_awaiter : public stream_wait {
 public:
  explicit stream_awaiter(device_stream on) noexcept : stream_wait(on) {}

  bool await_start(continuation& waiter) {
    begin(waiter);
    return true;
  }
};

/// Stands for a wait that has not begun.
class MANYWORLDS_MUST_AWAIT stream_awaitable {
 public:
  explicit stream_awaitable(device_stream on) noexcept : on_(on) {}
  awaitable_by_all<stream_awaiter> operator co_await() const noexcept {
    return awaitable_by_all<stream_awaiter>(on_);
  }

 private:
  device_stream on_;
};

}  // namespace detail

/// `co_await on(stream)` ends when everything has ended that was enqueued on the stream
/// before it was awaited. That may include what others enqueue while the wait begins on
/// its thread. It resumes on the reactor that it was awaited on. cudaStreamPerThread is
/// the stream of the thread that awaits: the wait then begins with calls to CUDA on
/// that thread, which may block on the driver's locks. A cancelled wait ends when the
/// stream gets there, since what it does uses the waiter's memory.
///
/// Errors: device_error if the stream's device failed, or the stream is being captured;
/// std::invalid_argument for no stream; std::logic_error where no reactor runs.
inline detail::stream_awaitable on(device_stream stream) noexcept {
  return detail::stream_awaitable(stream);
}

}  // namespace manyworlds::inline v0
