// Stream wait: what the awaits of work on a CUDA stream have in common.
#pragma once

#include <memory>

#include "manyworlds/coro/awaitable.hpp"
#include "manyworlds/io/reactor.hpp"
#include "manyworlds/memory/device_view.hpp"
#include "manyworlds/nccl/device_error.hpp"

namespace manyworlds::inline v0 {

namespace nccl {

class stream_look;
struct copy_plan;

}  // namespace nccl

/// Waits for a place in a stream. CUDA is called by a thread of the reactor's
/// ("mw-watch", from the first wait on), never by the reactor itself: a call may wait for
/// one of the driver's locks, and another thread of the application may hold that for as
/// long as the device is busy. One stream's wait then holds up those of the same reactor,
/// not its worlds.
///
/// CUDA is asked again when an eighth of the time waited so far has passed, at least
/// 20 us and at most 1 ms.
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
  /// `device_error` where CUDA or a thread is not to be had.
  void begin(continuation& waiter, const nccl::copy_plan* copy = nullptr);

 private:
  void hear();

  device_stream on_;
  std::shared_ptr<nccl::stream_look> look_;
  continuation* waiter_ = nullptr;
  bool is_cancelled_ = false;
};

}  // namespace manyworlds::inline v0
