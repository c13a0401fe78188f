// Foreign continuation: coroutines of other libraries await native operations.
#pragma once

#include <coroutine>
#include <cstdio>
#include <exception>
#include <optional>
#include <type_traits>
#include <utility>

#include "manyworlds/coro/awaitable.hpp"
#include "manyworlds/coro/giving_up.hpp"
#include "manyworlds/detail/assertion.hpp"

namespace manyworlds::inline v0::detail {

/// A coroutine of any type as the waiter of an operation. Such a coroutine cannot be
/// cancelled as a task can: it gives up by stop tokens and deadlines.
class foreign_continuation final : public continuation {
 public:
  foreign_continuation() noexcept
      : continuation([](continuation& k) noexcept {
          auto& self = static_cast<foreign_continuation&>(k);
          MW_ASSERT(self.is_waiting_, "an operation ends once (law 1)");
          self.is_waiting_ = false;
          return self.waiter_;
        }) {}

  void wait(std::coroutine_handle<> waiter, executor& home) noexcept {
    MW_ASSERT(!is_waiting_ && waiter, "a coroutine waits for one operation at a time");
    waiter_ = waiter;
    set_home(home);
    is_waiting_ = true;
  }

  [[nodiscard]] bool is_waiting() const noexcept { return is_waiting_; }

  /// Ends the program. The waiter's frame is being destroyed while the operation is in
  /// flight and cannot be taken back: its memory would be written after it is gone.
  [[noreturn]] static void cannot_withdraw() noexcept {
    std::fputs(
        "manyworlds: a coroutine was destroyed while it awaited an operation that cannot "
        "be withdrawn at once. Stop it (stop token, deadline) and let it end first.\n",
        stderr);
    std::terminate();
  }

 private:
  std::coroutine_handle<> waiter_;
  bool is_waiting_ = false;
};

/// Makes a native awaiter one that coroutines of any type can await, as well as tasks.
/// The `operator co_await` of an operation returns it.
///
/// The coroutine is resumed on the executor given to the constructor, else on that of the
/// operation (`Awaiter::await_home()`). In the first case the coroutine must run on that
/// executor's thread when it awaits; in the second the operation is started there.
///
/// Lifetime: destroying the coroutine on that thread with the operation in flight
/// withdraws it. If that cannot be done at once, or on another thread, the program ends
/// with a message.
template <class Awaiter>
class awaitable_by_all : public Awaiter {
 public:
  using Awaiter::Awaiter;
  /// `there`: the executor that resumes the coroutine; may be null.
  template <class... Args>
  awaitable_by_all(executor* there, Args&&... args)
      : Awaiter(std::forward<Args>(args)...), resumption_(there) {}
  awaitable_by_all(const awaitable_by_all&) = delete;
  awaitable_by_all& operator=(const awaitable_by_all&) = delete;
  ~awaitable_by_all() {
    if (!foreign_ || !foreign_->waiter.is_waiting()) return;
    const bool is_here = resumption_ || foreign_->waiter.home().is_current();
    if (foreign_->start.is_queued || !is_here || !this->await_cancel()) {
      foreign_continuation::cannot_withdraw();
    }
  }

  // Not inlined: another thread may go on with the coroutine before this returns, and
  // clang 14 to 16 would keep locals of inlined code in its frame (llvm issue 56301).
  template <class Promise>
  [[gnu::noinline]] std::coroutine_handle<> await_suspend(
      std::coroutine_handle<Promise> waiter) {
    foreign_side& foreign = foreign_.emplace(*this);
    executor& home = resumption_ ? *resumption_ : this->await_home();
    foreign.waiter.wait(waiter, home);
    if (!resumption_ && !home.is_current()) {
      foreign.start.is_queued = true;
      if (home.try_post(foreign.start)) return std::noop_coroutine();
      // That executor would no longer start it: the operation itself reports that, here.
      foreign.start.is_queued = false;
    }
    return start();
  }

  decltype(auto) await_resume() {
    if (foreign_) {
      if (foreign_->start_error) std::rethrow_exception(foreign_->start_error);
      // A foreign coroutine learns of a cancelled end by an exception only.
      if (!this->await_must_resume()) throw stopped();
    }
    return Awaiter::await_resume();
  }

 private:
  struct starter final : work {
    explicit starter(awaitable_by_all& a) noexcept
        : work(
              [](work& w) noexcept {
                auto& self = static_cast<starter&>(w);
                MW_ASSERT(self.is_queued, "a queued start runs once");
                self.is_queued = false;
                self.awaiter.start().resume();
              },
              work_kind::tasks),
          awaiter(a) {}
    awaitable_by_all& awaiter;
    bool is_queued = false;
  };
  /// Holds what only foreign coroutines need: a task is its own continuation.
  struct foreign_side {
    explicit foreign_side(awaitable_by_all& a) noexcept : start(a) {}
    foreign_continuation waiter;
    starter start;
    std::exception_ptr start_error;
  };

  /// Starts the operation and returns what to run next: the waiter itself if the
  /// operation has ended at once.
  std::coroutine_handle<> start() noexcept {
    continuation& waiter = foreign_->waiter;
    using result = decltype(this->await_start(waiter));
    try {
      if constexpr (std::is_void_v<result>) {
        this->await_start(waiter);
        return std::noop_coroutine();
      } else if constexpr (std::is_same_v<result, bool>) {
        if (this->await_start(waiter)) return std::noop_coroutine();
      } else {
        return this->await_start(waiter);
      }
    } catch (...) {
      foreign_->start_error = std::current_exception();
    }
    return waiter.take();
  }

  std::optional<foreign_side> foreign_;
  executor* resumption_ = nullptr;
};

}  // namespace manyworlds::inline v0::detail
