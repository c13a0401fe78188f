// Promise: where a task runs, what it awaits, and how it is cancelled.
#pragma once

#include <coroutine>
#include <cstddef>
#include <exception>
#include <memory>
#include <type_traits>
#include <utility>

#include "manyworlds/coro/awaitable.hpp"
#include "manyworlds/detail/assertion.hpp"
#include "manyworlds/detail/foreign_awaitable.hpp"
#include "manyworlds/detail/frame_pool.hpp"
#include "manyworlds/source_position.hpp"

namespace manyworlds::inline v0::detail {

template <class T>
class task_promise;

/// Holds for what a task awaits that is told in which line it does.
template <class Awaitable>
concept notes_its_place = requires(std::remove_reference_t<Awaitable>& awaitable,
                                   source_position where) {
  awaitable.note_place(where);
};

/// Says how a task ended.
enum class task_outcome : unsigned char { running, returned, threw, cancelled };

/// The untyped part of a task's promise. A task awaits one thing at a time, so the
/// promise itself is the continuation of what it awaits.
class promise_base : public continuation {
 public:
  /// Asks the task to stop. What it awaits is asked, or, if it runs at the moment, the
  /// request is taken at its next `co_await`. True: it has ended as cancelled and its
  /// parent will not be told. Thread: the home's only.
  bool cancel() noexcept;

  [[nodiscard]] task_outcome outcome() const noexcept { return outcome_; }
  /// Returns what the task threw, or null.
  [[nodiscard]] const std::exception_ptr& error() const noexcept { return error_; }
  [[nodiscard]] bool cancel_requested() const noexcept { return cancel_requested_; }

  /// Starts the task on `parent`'s home. Returns the handle to run now.
  std::coroutine_handle<> start(continuation& parent) noexcept {
    MW_ASSERT(state_ == state::created, "a task is started once");
    parent_ = &parent;
    set_home(parent.home());
    state_ = state::running;
    return self_;
  }

  std::suspend_always initial_suspend() const noexcept { return {}; }

  struct final_awaiter {
    bool await_ready() const noexcept { return false; }
    template <class Promise>
    std::coroutine_handle<> await_suspend(std::coroutine_handle<Promise> h) noexcept {
      return h.promise().ended();
    }
    void await_resume() const noexcept {}
  };
  final_awaiter final_suspend() const noexcept { return {}; }

  void unhandled_exception() noexcept {
    error_ = std::current_exception();
    outcome_ = task_outcome::threw;
  }

  template <class Awaitable>
  requires(!notes_its_place<Awaitable>) auto await_transform(Awaitable&& awaitable);
  // Not for the others: the place would stand in the frames of all tasks.
  template <notes_its_place Awaitable>
  auto await_transform(Awaitable&& awaitable, source_position where = source_position()) {
    awaitable.note_place(where);
    return suspension_of(std::forward<Awaitable>(awaitable));
  }

  static void* operator new(std::size_t size) { return frame_pool::allocate(size); }
  static void operator delete(void* p, std::size_t size) noexcept {
    frame_pool::deallocate(p, size);
  }

 protected:
  explicit promise_base(std::coroutine_handle<> self) noexcept
      : continuation(
            [](work& w) noexcept { static_cast<promise_base&>(w).awaited().resume(); },
            [](continuation& k) noexcept {
              return static_cast<promise_base&>(k).awaited();
            },
            nullptr),
        self_(self) {}
  ~promise_base() = default;

  void set_returned() noexcept {
    MW_ASSERT(outcome_ == task_outcome::running, "a task ends once");
    outcome_ = task_outcome::returned;
  }
  void rethrow_error() {
    if (error_) std::rethrow_exception(std::exchange(error_, nullptr));
  }

 private:
  template <class Awaitable>
  auto suspension_of(Awaitable&& awaitable);

  template <class Awaiter>
  friend class task_suspension;

  enum class state : unsigned char { created, running, suspended, ended };

  struct awaiter_verbs {
    bool (*cancel)(void*) noexcept;
    bool (*must_resume)(const void*) noexcept;
    bool is_cancelled_only_if_asked;
  };
  template <class Awaiter>
  static constexpr awaiter_verbs verbs_of{
      [](void* a) noexcept { return static_cast<Awaiter*>(a)->await_cancel(); },
      [](const void* a) noexcept {
        return static_cast<const Awaiter*>(a)->await_must_resume();
      },
      cancelled_only_if_asked<Awaiter>};

  template <class Awaiter>
  void suspend_on(Awaiter& a) noexcept {
    MW_ASSERT(state_ == state::running, "only a task that runs awaits something");
    awaiter_ = std::addressof(a);
    verbs_ = &verbs_of<Awaiter>;
    state_ = state::suspended;
  }

  /// Called when what is awaited has ended: the task goes on, or ends as cancelled.
  std::coroutine_handle<> awaited() noexcept {
    MW_ASSERT(state_ == state::suspended,
              "a task is resumed once for each await (law 1)");
    const bool may_be_cancelled =
        cancel_requested_ || !verbs_->is_cancelled_only_if_asked;
    if (may_be_cancelled && !verbs_->must_resume(awaiter_)) return end_cancelled();
    state_ = state::running;
    return self_;
  }

  /// Ends the task as cancelled. The frame stays suspended at its await until its owner
  /// destroys it: the locals unwind then.
  std::coroutine_handle<> end_cancelled() noexcept {
    outcome_ = task_outcome::cancelled;
    return ended();
  }

  std::coroutine_handle<> ended() noexcept {
    MW_ASSERT(state_ == state::running || state_ == state::suspended,
              "a task that was started ends once");
    MW_ASSERT(outcome_ != task_outcome::running, "a task has an outcome when it ends");
    state_ = state::ended;
    return parent_->take();
  }

  std::coroutine_handle<> self_;
  continuation* parent_ = nullptr;
  std::exception_ptr error_;
  void* awaiter_ = nullptr;
  const awaiter_verbs* verbs_ = nullptr;
  state state_ = state::created;
  task_outcome outcome_ = task_outcome::running;
  bool cancel_requested_ = false;
};

// --------------------------------------------------------------------------------------

inline bool promise_base::cancel() noexcept {
  const bool again = std::exchange(cancel_requested_, true);
  if (state_ == state::suspended) {
    // The awaiter is asked once only: it has answered "later" already.
    if (again || !verbs_->cancel(awaiter_)) return false;
  } else if (state_ != state::created) {
    return false;
  }
  MW_ASSERT(outcome_ == task_outcome::running, "a task ends once");
  state_ = state::ended;
  outcome_ = task_outcome::cancelled;
  return true;
}

/// Stands between a task and an awaiter, and remembers the awaiter for cancellation.
template <class Awaiter>
class task_suspension {
 public:
  using awaiter_type = std::remove_reference_t<Awaiter>;
  static_assert(native_awaiter<awaiter_type>);

  template <class Awaitable>
  task_suspension(promise_base& promise, Awaitable&& awaitable)
      : awaiter_(get_awaiter(std::forward<Awaitable>(awaitable))), promise_(promise) {}
  task_suspension(const task_suspension&) = delete;
  task_suspension& operator=(const task_suspension&) = delete;
  ~task_suspension() = default;

  bool await_ready() noexcept {
    return !promise_.cancel_requested_ && awaiter_.await_ready();
  }

  std::coroutine_handle<> await_suspend(std::coroutine_handle<> self) {
    if (promise_.cancel_requested_) {
      if (skips()) return promise_.end_cancelled();
      if (awaiter_.await_ready()) {
        return awaiter_.await_must_resume() ? self : promise_.end_cancelled();
      }
    }
    promise_.suspend_on(awaiter_);
    try {
      using result = decltype(awaiter_.await_start(promise_));
      // Nothing of this object may be touched once the awaiter was started: its end may
      // already be running elsewhere.
      if constexpr (std::is_void_v<result>) {
        awaiter_.await_start(promise_);
        return std::noop_coroutine();
      } else if constexpr (std::is_same_v<result, bool>) {
        return awaiter_.await_start(promise_) ? std::noop_coroutine()
                                              : promise_.awaited();
      } else {
        return awaiter_.await_start(promise_);
      }
    } catch (...) {
      promise_.state_ = promise_base::state::running;
      throw;
    }
  }

  decltype(auto) await_resume() { return awaiter_.await_resume(); }

 private:
  bool skips() noexcept {
    if constexpr (customizes_early_cancel<awaiter_type>) {
      return awaiter_.await_early_cancel();
    } else {
      return true;
    }
  }

  Awaiter awaiter_;
  promise_base& promise_;
};

template <class Awaitable>
requires(!notes_its_place<Awaitable>) auto promise_base::await_transform(
    Awaitable&& awaitable) {
  return suspension_of(std::forward<Awaitable>(awaitable));
}

template <class Awaitable>
auto promise_base::suspension_of(Awaitable&& awaitable) {
  if constexpr (!is_awaitable<Awaitable>) {
    refuse_to_await<Awaitable>();
    return refused_awaiter<refused_result<Awaitable>>();
  } else if constexpr (native_awaiter<std::remove_reference_t<awaiter_of<Awaitable>>>) {
    // An awaiter given as an rvalue lives in the full-expression: refer to it, do not
    // move it.
    return task_suspension<awaiter_of<Awaitable>>(*this,
                                                  std::forward<Awaitable>(awaitable));
  } else {
    return task_suspension<foreign_awaitable<Awaitable>>(
        *this, foreign_awaitable<Awaitable>(std::forward<Awaitable>(awaitable)));
  }
}

}  // namespace manyworlds::inline v0::detail
