// Started: a task that was handed to a runtime, seen from outside.
#pragma once

#include <atomic>
#include <condition_variable>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <utility>

#include "manyworlds/coro/giving_up.hpp"
#include "manyworlds/coro/task.hpp"
#include "manyworlds/detail/member_work.hpp"
#include "manyworlds/detail/root.hpp"
#include "manyworlds/detail/value_slot.hpp"
#include "manyworlds/source_position.hpp"

namespace manyworlds::inline v0 {

class runtime;

template <class T>
class started;

namespace detail {

/// The untyped part of a started task. Lifetime: its frame lives and dies on the
/// reactor.
class started_base : public std::enable_shared_from_this<started_base> {
 public:
  started_base(const started_base&) = delete;
  started_base& operator=(const started_base&) = delete;
  virtual ~started_base() = default;

  /// Returns where it was started.
  [[nodiscard]] source_position where() const noexcept { return where_; }
  [[nodiscard]] time_point started_at() const noexcept { return started_at_; }
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
  started_base(executor& home, source_position where)
      : root_(
            home, [](void* self) noexcept { static_cast<started_base*>(self)->notice(); },
            this),
        home_(home),
        where_(where),
        started_at_(home.now()) {}

  [[nodiscard]] virtual promise_base& promise() noexcept = 0;
  /// Moves the outcome out of the frame and destroys the frame.
  virtual void collect() noexcept = 0;

  /// What the task threw. It is written before its end is told.
  std::exception_ptr error_;
  /// Set when the outcome was asked for: the starter knows what the task threw.
  std::atomic<bool> is_taken_{false};

 private:
  friend runtime;
  template <class T>
  friend class manyworlds::v0::started;

  void begin() noexcept { root_.start(promise()); }
  void cancel() noexcept {
    if (!ending_ && root_.cancel()) notice();
  }
  // Called from within the task's last suspension: its frame must not be destroyed yet.
  void notice() noexcept {
    if (!std::exchange(ending_, true)) home_.schedule(reap_);
  }
  void reap() noexcept;
  /// Called when the last handle was dropped: the outcome cannot be asked for from now
  /// on. Thread: any.
  void let_go() noexcept;
  /// Logs what the task threw unless it was taken or logged already. Thread: any.
  void tell_error() noexcept;
  /// Called when its runtime ends without it: it stays where it waits, with its frame.
  void leave_behind() noexcept;

  task_root root_;
  member_work<&started_base::reap> reap_{*this};
  executor& home_;
  const source_position where_;
  const time_point started_at_;
  std::function<void()> forget_;
  /// Logs an error that was not taken. It is emptied then, and when the runtime ends.
  std::function<void(const started_base&)> lost_;  // guarded by mutex_
  std::atomic<bool> is_let_go_{false};
  bool ending_ = false;
  /// Set once, by `reap` or by `leave_behind`: that one tells the end.
  std::atomic<bool> is_settled_{false};
  std::atomic<bool> ended_{false};
  mutable std::mutex mutex_;
  mutable std::condition_variable changed_;
};

template <class T>
class started_task final : public started_base {
 public:
  started_task(executor& home, task<T> t, source_position where)
      : started_base(home, where), task_(std::move(t)) {
    if (!task_) refuse_empty_task();
  }

  /// Returns the value or throws what the task threw; `stopped` if it was cancelled and
  /// a value is expected. Called once, after the end.
  T take() {
    is_taken_.store(true);
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
};

}  // namespace detail

/// A handle on a started task. Copies refer to the same task.
///
///     mw::started<float> asked = rt.start(ask(w));
///     while (!asked.wait_for(1s)) std::puts("still waiting");
///     use(asked.get());
///
/// If `get()` is not called, what the task throws is not lost: the runtime logs an
/// error with its text when the last handle is dropped. If a handle is kept, it does so
/// a second after the task's end. `runtime::dump` lists it too.
///
/// Errors: std::invalid_argument of all members once it was moved from.
template <class T>
class [[nodiscard("(void) it if nothing shall wait for its end")]] started {
 public:
  explicit started(std::shared_ptr<detail::started_task<T>> state)
      : state_(std::make_shared<holding>(state), state.get()) {}

  /// Returns whether the task has ended.
  [[nodiscard]] bool is_ready() const { return existing().has_ended(); }
  /// Waits until the task has ended, and returns whether it has. Blocks the thread.
  [[nodiscard]] bool wait_for(duration limit) const { return existing().wait_for(limit); }
  /// Blocks until the task has ended. Returns its value, once. If `runtime::stop`
  /// cancelled the task, this returns if the task has no value.
  ///
  /// Errors: what the task threw; `stopped` if a value is expected and the task was
  /// cancelled; std::logic_error inside a task unless `is_ready()`, since it would block
  /// the thread that tasks run on.
  T get() {
    detail::started_task<T>& task = existing();
    if (executor::current() && !task.has_ended()) refuse_to_block();
    task.wait();
    return task.take();
  }

 private:
  /// All handles share it: it tells the task when the last of them is gone.
  struct holding {
    explicit holding(std::shared_ptr<detail::started_task<T>> s) noexcept
        : task(std::move(s)) {}
    holding(const holding&) = delete;
    holding& operator=(const holding&) = delete;
    ~holding() { task->let_go(); }
    std::shared_ptr<detail::started_task<T>> task;
  };
  [[noreturn]] static void refuse_to_block() {
    throw std::logic_error(
        "started::get() inside a task would block the thread that tasks run on, perhaps "
        "the one it waits for: co_await the task itself, or spawn it in a scope");
  }
  [[nodiscard]] detail::started_task<T>& existing() const {
    if (state_) [[likely]]
      return *state_;
    throw std::invalid_argument("this started<T> was moved from: it has no task");
  }

  std::shared_ptr<detail::started_task<T>> state_;
};

}  // namespace manyworlds::inline v0
