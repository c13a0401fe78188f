// Foreign awaitable: any standard C++20 awaitable of another library, inside a task.
#pragma once

#include <coroutine>
#include <exception>
#include <type_traits>
#include <utility>

#include "manyworlds/coro/awaitable.hpp"
#include "manyworlds/detail/value_slot.hpp"

namespace manyworlds::inline v0::detail {

/// A native awaiter around a standard awaitable. The awaitable may resume on any thread;
/// the task goes on at its home all the same, which costs one small frame. Once started
/// it cannot be stopped: a cancelled task waits for it and is cancelled at its next
/// `co_await`.
template <class Awaitable>
class foreign_awaitable {
  using result = await_result_t<Awaitable>;

 public:
  explicit foreign_awaitable(Awaitable&& awaitable)
      : awaitable_(std::forward<Awaitable>(awaitable)) {}
  foreign_awaitable(foreign_awaitable&& other) noexcept
      : awaitable_(std::forward<Awaitable>(other.awaitable_)) {}
  foreign_awaitable& operator=(foreign_awaitable&&) = delete;
  ~foreign_awaitable() = default;

  bool await_ready() const noexcept { return false; }
  void await_start(continuation& k) { bridge(*this, k); }
  bool await_cancel() const noexcept { return false; }
  bool await_must_resume() const noexcept { return true; }

  result await_resume() {
    if (error_) std::rethrow_exception(error_);
    return value_.take();
  }

 private:
  struct bridge_frame {
    struct promise_type {
      promise_type(foreign_awaitable&, continuation& k) noexcept : waiter(k) {}
      continuation& waiter;

      bridge_frame get_return_object() const noexcept { return {}; }
      std::suspend_never initial_suspend() const noexcept { return {}; }
      // The frame is gone before the waiter runs, perhaps on another thread.
      struct resume_waiter {
        continuation& waiter;
        bool await_ready() const noexcept { return false; }
        // Not inlined: clang 14 to 16 would keep `k` in the frame (llvm issue 56301).
        [[gnu::noinline]] void await_suspend(
            std::coroutine_handle<promise_type> h) const noexcept {
          continuation& k = waiter;
          h.destroy();
          k.resume();
        }
        void await_resume() const noexcept {}
      };
      resume_waiter final_suspend() const noexcept { return {waiter}; }
      void return_void() const noexcept {}
      void unhandled_exception() const noexcept { std::terminate(); }
    };
  };

  static bridge_frame bridge(foreign_awaitable& self, continuation&) {
    try {
      if constexpr (std::is_void_v<result>) {
        co_await std::forward<Awaitable>(self.awaitable_);
      } else {
        self.value_.emplace(co_await std::forward<Awaitable>(self.awaitable_));
      }
    } catch (...) {
      self.error_ = std::current_exception();
    }
  }

  Awaitable awaitable_;
  value_slot<result> value_;
  std::exception_ptr error_;
};

}  // namespace manyworlds::inline v0::detail
