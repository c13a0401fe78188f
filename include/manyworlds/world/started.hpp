// Started: a task that was handed to a runtime, seen from outside.
#pragma once

#include <atomic>
#include <condition_variable>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <utility>

#include "manyworlds/coro/giving_up.hpp"
#include "manyworlds/coro/root.hpp"
#include "manyworlds/coro/task.hpp"
#include "manyworlds/coro/value_slot.hpp"
#include "manyworlds/io/reactor.hpp"

namespace manyworlds::inline v0 {

class runtime;

/// The untyped part of a started task. Its frame lives and dies on the reactor.
class started_base : public std::enable_shared_from_this<started_base> {
 public:
  started_base(const started_base&) = delete;
  started_base& operator=(const started_base&) = delete;
  virtual ~started_base() = default;

  [[nodiscard]] bool has_ended() const noexcept {
    return ended_.load(std::memory_order_acquire);
  }
  void wait() const {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return has_ended(); });
  }
  [[nodiscard]] bool wait_for(duration limit) const {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, limit, [this] { return has_ended(); });
  }

 protected:
  explicit started_base(reactor& home)
      : root_(
            home, [](void* self) noexcept { static_cast<started_base*>(self)->notice(); },
            this),
        reap_([](work& w) noexcept { static_cast<reaping&>(w).owner->reap(); }, *this),
        home_(home) {}

  [[nodiscard]] virtual promise_base& promise() noexcept = 0;
  /// Moves the outcome out of the frame and destroys the frame.
  virtual void collect() noexcept = 0;

 private:
  friend class runtime;

  struct reaping final : work {
    reaping(function f, started_base& s) noexcept : work(f), owner(&s) {}
    started_base* owner;
  };

  void begin() noexcept { root_.start(promise()); }
  void cancel() noexcept {
    if (!ending_ && root_.cancel()) notice();
  }
  // Called from within the task's last suspension: its frame must not be destroyed yet.
  void notice() noexcept {
    if (!std::exchange(ending_, true)) home_.schedule(reap_);
  }
  void reap() noexcept;

  task_root root_;
  reaping reap_;
  reactor& home_;
  std::function<void()> forget_;
  bool ending_ = false;
  std::atomic<bool> ended_{false};
  mutable std::mutex mutex_;
  mutable std::condition_variable changed_;
};

template <class T>
class started_task final : public started_base {
 public:
  started_task(reactor& home, task<T> t) : started_base(home), task_(std::move(t)) {}

  /// Once, after the end. One that was cancelled has no value to give, and has simply
  /// ended if nobody asked for one.
  T take() {
    if (error_) std::rethrow_exception(error_);
    if constexpr (!std::is_void_v<T>) {
      if (!value_.has_value()) throw stopped();
      return value_.take();
    }
  }

 private:
  promise_base& promise() noexcept override { return task_.promise(); }
  void collect() noexcept override {
    const task_outcome how = task_.promise().outcome();
    error_ = task_.promise().error();
    if (how == task_outcome::returned) {
      if constexpr (!std::is_void_v<T>) value_.emplace(task_.promise().take_result());
    }
    task_.reset();
  }

  task<T> task_;
  value_slot<T> value_;
  std::exception_ptr error_;
};

/// Copies refer to the same task.
template <class T>
class [[nodiscard]] started {
 public:
  explicit started(std::shared_ptr<started_task<T>> state) noexcept
      : state_(std::move(state)) {}

  [[nodiscard]] bool is_ready() const noexcept { return state_->has_ended(); }
  [[nodiscard]] bool wait_for(duration limit) const { return state_->wait_for(limit); }
  /// Blocks until the task has ended, so never from a task. Gives its value, once, or
  /// throws what it threw. A task without a value that was cancelled by `runtime::stop`
  /// has simply ended; one with a value throws `stopped`.
  T get() {
    state_->wait();
    return state_->take();
  }

 private:
  std::shared_ptr<started_task<T>> state_;
};

}  // namespace manyworlds::inline v0
