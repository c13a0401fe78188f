// Outcome: an operation's value or its failure, without a throw.
#pragma once

#include <type_traits>
#include <utility>

#include "manyworlds/coro/awaitable.hpp"
#include "manyworlds/detail/native_only.hpp"
#include "manyworlds/world/result.hpp"

namespace manyworlds::inline v0 {

namespace detail {

/// An awaiter that hands out its failure instead of throwing it.
template <class A>
concept hands_out_failure = requires(A& a) {
  { a.take_failure() } -> std::same_as<failure>;
};

template <class Awaitable>
class outcome_awaiter : public native_only {
  using inner = awaiter_of<Awaitable>;
  using value = await_result_t<Awaitable>;

 public:
  explicit outcome_awaiter(Awaitable&& awaitable)
      : inner_(get_awaiter(std::forward<Awaitable>(awaitable))) {}

  bool await_ready() noexcept { return inner_.await_ready(); }
  decltype(auto) await_start(continuation& k) { return inner_.await_start(k); }
  bool await_cancel() noexcept { return inner_.await_cancel(); }
  bool await_must_resume() const noexcept { return inner_.await_must_resume(); }

  result<value> await_resume() {
    if constexpr (hands_out_failure<std::remove_reference_t<inner>>) {
      if (failure f = inner_.take_failure()) return f;
    }
    try {
      if constexpr (std::is_void_v<value>) {
        inner_.await_resume();
        return {};
      } else {
        return inner_.await_resume();
      }
    } catch (const world_error& e) {
      return e.failure();
    }
  }

 private:
  inner inner_;
};

template <class Awaitable>
class MANYWORLDS_MUST_AWAIT outcome_awaitable : public not_for_asio {
 public:
  explicit outcome_awaitable(Awaitable&& awaitable)
      : awaitable_(std::forward<Awaitable>(awaitable)) {}
  outcome_awaiter<Awaitable> operator co_await() && {
    return outcome_awaiter<Awaitable>(std::forward<Awaitable>(awaitable_));
  }

 private:
  Awaitable awaitable_;
};

}  // namespace detail

/// Gives the value, or the failure that a world_error would have carried, and never
/// throws one: `auto r = co_await outcome(w.recv(x, from{1}))`. Errors: exceptions of the
/// operation that are no world_error.
template <class Awaitable>
auto outcome(Awaitable&& awaitable) {
  if constexpr (!is_awaitable<Awaitable>) {
    detail::refuse_to_await<Awaitable>();
    return detail::refused_awaiter<result<detail::refused_result<Awaitable>>>();
  } else {
    return detail::outcome_awaitable<Awaitable>(std::forward<Awaitable>(awaitable));
  }
}

}  // namespace manyworlds::inline v0
