// offload: awaits a function that runs on another thread.
#pragma once

#include <atomic>
#include <exception>
#include <functional>
#include <type_traits>
#include <utility>

#include "manyworlds/coro/awaitable.hpp"
#include "manyworlds/coro/worker_thread.hpp"
#include "manyworlds/detail/assertion.hpp"
#include "manyworlds/detail/body.hpp"
#include "manyworlds/detail/value_slot.hpp"

namespace manyworlds::inline v0 {

namespace detail {

/// Holds for what a function may be offloaded to: what takes work (`worker_thread`, any
/// `executor`), or a foreign executor that takes callables.
template <class W>
concept takes_work = requires(W& where, work& w) {
  where.post(w);
};

template <class W>
concept takes_callables = requires(W& where, void (*f)()) {
  where.execute(f);
};

template <class Where, class F>
class offload_awaiter final : public native_only, private work {
  using result = std::invoke_result_t<F&>;

 public:
  offload_awaiter(Where& where, F&& f) noexcept
      : work([](work& w) noexcept { static_cast<offload_awaiter&>(w).perform(); }),
        where_(where),
        f_(std::forward<F>(f)) {}

  bool await_ready() const noexcept { return false; }
  void await_start(continuation& k) {
    waiter_ = &k;
    if constexpr (takes_work<Where>) {
      where_.post(*this);
    } else {
      where_.execute([this] { this->run(); });
    }
  }
  // It cannot be taken out of the other thread's queue, but it need not begin.
  bool await_cancel() noexcept {
    auto expected = progress::queued;
    progress_.compare_exchange_strong(expected, progress::withdrawn,
                                      std::memory_order_relaxed);
    return false;
  }
  bool await_must_resume() const noexcept {
    MW_ASSERT(progress_.load(std::memory_order_relaxed) != progress::queued,
              "a function is begun or withdrawn before its waiter is resumed");
    return progress_.load(std::memory_order_relaxed) == progress::begun;
  }
  result await_resume() {
    if (error_) std::rethrow_exception(error_);
    return value_.take();
  }

 private:
  enum class progress : unsigned char { queued, begun, withdrawn };

  void perform() noexcept {
    MW_ASSERT(waiter_, "a function has a waiter before it is handed over");
    auto expected = progress::queued;
    // The result travels with the waiter's resumption, which orders it.
    if (progress_.compare_exchange_strong(expected, progress::begun,
                                          std::memory_order_relaxed)) {
      try {
        if constexpr (std::is_void_v<result>) {
          std::invoke(f_);
        } else {
          value_.emplace(std::invoke(f_));
        }
      } catch (...) {
        error_ = std::current_exception();
      }
    }
    waiter_->resume();
  }

  Where& where_;
  F f_;
  continuation* waiter_ = nullptr;
  value_slot<result> value_;
  std::exception_ptr error_;
  std::atomic<progress> progress_{progress::queued};
};

template <class Where, class F>
class MANYWORLDS_MUST_AWAIT offload_awaitable : public not_for_asio {
 public:
  offload_awaitable(Where& where, F&& f) noexcept
      : where_(&where), f_(std::forward<F>(f)) {}
  offload_awaiter<Where, F> operator co_await() && noexcept {
    return offload_awaiter<Where, F>(*where_, std::forward<F>(f_));
  }

 private:
  Where* where_;
  F f_;
};

}  // namespace detail

/// `co_await offload(thread, [&] { return compute(x); })` runs the function there, and
/// goes on at home with what it gave. Errors: what the function threw.
///
/// Once begun it cannot be cancelled: a cancelled task waits for it, so references to the
/// task's locals are safe. A closure that has a name is taken by reference.
template <class Where, class F>
requires(detail::takes_work<Where> || detail::takes_callables<Where>)
    detail::offload_awaitable<Where, F> offload(Where& where, F&& f) {
  static_assert(std::is_invocable_v<F&>, "offload needs a callable without parameters");
  detail::refuse_to_await_closure<detail::may_be_freed_twice<F>>();
  return detail::offload_awaitable<Where, F>(where, std::forward<F>(f));
}

}  // namespace manyworlds::inline v0
