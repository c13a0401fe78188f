// Stream wait: what the awaits of work on a CUDA stream have in common.
#pragma once

#include <optional>

#include "manyworlds/coro/awaitable.hpp"
#include "manyworlds/io/reactor.hpp"
#include "manyworlds/memory/device_view.hpp"
#include "manyworlds/nccl/device_error.hpp"

struct CUevent_st;

namespace manyworlds::inline v0 {

/// Waits for a place in a stream, as a poller of the reactor that it was started on.
///
/// CUDA is asked again when an eighth of the time waited so far has passed, at most 1 ms,
/// so that many waits, and long ones, leave the reactor to others; a reactor that sleeps
/// does so for at least 20 us.
class stream_wait : private poller {
 public:
  stream_wait(const stream_wait&) = delete;
  stream_wait& operator=(const stream_wait&) = delete;

  bool await_ready() const noexcept { return false; }
  /// What was enqueued uses memory of the waiter's and cannot be taken back: the waiter
  /// is resumed, cancelled, when it is done.
  bool await_cancel() noexcept;
  bool await_must_resume() const noexcept { return !is_cancelled_ || error_ != 0; }
  void await_resume() const;

  /// Throws std::logic_error where no reactor runs.
  [[nodiscard]] executor& await_home() const;

 protected:
  /// `asked` completes "waiting for ..." in errors and lives as long as this.
  stream_wait(device_stream on, const char* asked) noexcept : on_(on), asked_(asked) {}
  ~stream_wait();

  /// Throws std::logic_error where no reactor runs, std::invalid_argument for no stream,
  /// `device_error` otherwise. Then an event of the stream's device is there.
  void prepare();
  /// Waits for what is on the stream now. False if that is done.
  bool wait(continuation& waiter);
  [[nodiscard]] bool is_cancelled() const noexcept { return is_cancelled_; }
  /// The stream's.
  [[nodiscard]] int device() const noexcept { return device_; }
  /// An error of CUDA's that ends the wait.
  void fail(int error) noexcept { error_ = error; }

 private:
  enum class answer : unsigned char { not_yet, goes_on, ended };

  /// Called whenever the stream got there: enqueues the next piece and returns true, or
  /// false if there is none, or it failed.
  virtual bool enqueue_more() noexcept { return false; }

  bool poll() noexcept final;
  bool prepare_sleep(std::optional<duration>& limit) noexcept final;
  void cancel_sleep() noexcept final {}

  bool look(time_point now) noexcept;
  [[nodiscard]] bool record() noexcept;
  [[nodiscard]] answer ask() noexcept;
  void begin_looking() noexcept;
  void end() noexcept;
  void destroy_event() noexcept;

  device_stream on_;
  const char* asked_;
  CUevent_st* event_ = nullptr;
  reactor* reactor_ = nullptr;
  continuation* waiter_ = nullptr;
  time_point since_{};
  time_point next_look_{};
  int error_ = 0;
  int device_ = 0;
  bool is_cancelled_ = false;
};

}  // namespace manyworlds::inline v0
