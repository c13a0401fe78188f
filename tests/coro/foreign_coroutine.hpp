// A coroutine type that knows nothing of this library, and an awaitable likewise.
#pragma once

#include <coroutine>
#include <exception>
#include <utility>

namespace manyworlds::testing {

/// Starts at once; its frame belongs to this object.
class foreign_coroutine {
 public:
  struct promise_type {
    bool is_done = false;
    std::exception_ptr error;
    foreign_coroutine get_return_object() {
      return foreign_coroutine(std::coroutine_handle<promise_type>::from_promise(*this));
    }
    std::suspend_never initial_suspend() const noexcept { return {}; }
    std::suspend_always final_suspend() const noexcept { return {}; }
    void return_void() noexcept { is_done = true; }
    void unhandled_exception() noexcept {
      is_done = true;
      error = std::current_exception();
    }
  };

  explicit foreign_coroutine(std::coroutine_handle<promise_type> h) noexcept : h_(h) {}
  foreign_coroutine(foreign_coroutine&& other) noexcept
      : h_(std::exchange(other.h_, nullptr)) {}
  ~foreign_coroutine() { destroy(); }
  void destroy() noexcept {
    if (h_) std::exchange(h_, nullptr).destroy();
  }

  [[nodiscard]] bool is_done() const noexcept { return h_.promise().is_done; }
  void rethrow() const {
    if (h_.promise().error) std::rethrow_exception(h_.promise().error);
  }

 private:
  std::coroutine_handle<promise_type> h_;
};

}  // namespace manyworlds::testing
