// Stream wait: what the awaits of work on a CUDA stream have in common.
#pragma once

#include <memory>

#include "manyworlds/coro/awaitable.hpp"
#include "manyworlds/memory/device_view.hpp"
#include "manyworlds/nccl/device_error.hpp"

namespace manyworlds::inline v0::detail {

namespace nccl {

class stream_poll;
struct copy_plan;

}  // namespace nccl

/// Waits for a place in a stream. A thread of the reactor's calls CUDA ("mw-watch",
/// started by the first wait): a call may wait for one of the driver's locks, which
/// another thread of the application may hold for as long as the device is busy. Such a
/// call delays the other waits of this reactor, not its worlds. Only for
/// cudaStreamPerThread does the reactor itself call CUDA, once, when the wait begins: no
/// other thread can name that stream. For a default stream it asks its thread for the
/// current device (cudaGetDevice), which takes no lock.
///
/// CUDA is asked again when an eighth of the time waited so far has passed, after 20 us
/// to 1 ms; without a pause for a moment after something was found.
class stream_wait {
 public:
  stream_wait(const stream_wait&) = delete;
  stream_wait& operator=(const stream_wait&) = delete;

  bool await_ready() const noexcept { return false; }
  /// What was enqueued uses memory of the waiter's and cannot be taken back: the waiter
  /// is resumed, cancelled, when it is done.
  bool await_cancel() noexcept;
  bool await_must_resume() const noexcept;
  void await_resume() const;

  /// Throws std::logic_error where no reactor runs.
  [[nodiscard]] executor& await_home() const;

 protected:
  explicit stream_wait(device_stream on) noexcept : on_(on) {}
  ~stream_wait();

  /// Waits for what is on the stream now or, if one is given, for a copy. Throws
  /// std::logic_error where no reactor runs, std::invalid_argument for no stream,
  /// `device_error` if CUDA is missing or no thread can be started.
  void begin(continuation& waiter, const nccl::copy_plan* copy = nullptr);

 private:
  void hear();

  device_stream on_;
  std::shared_ptr<nccl::stream_poll> poll_;
  continuation* waiter_ = nullptr;
};

}  // namespace manyworlds::inline v0::detail
