// The awaiter protocol of the library: the standard verbs, plus cancellation as a verb of
// the awaiter.
//
// The model is corral's (Hudson River Trading, corral/concepts.h): the parent asks its
// current awaiter to stop, recursively down to the leaf, which answers "stopped now" or
// "I will resume you later". There are two differences. An awaiter is started with a
// `continuation` instead of a coroutine handle, so that cancellation needs no forged
// coroutine frames. A cancelled task is not resumed at all: its owner destroys its frame,
// and its locals unwind leaf first.
#pragma once

#include <concepts>
#include <coroutine>
#include <type_traits>
#include <utility>

#include "manyworlds/coro/continuation.hpp"

namespace manyworlds::inline v0 {

namespace detail {

/// Lists what `await_start` may return: nothing (suspended), bool (false: it has ended
/// already, go on), or the handle to run next.
template <class T>
concept await_start_result = std::is_void_v<T> || std::same_as<T, bool> ||
    std::convertible_to<T, std::coroutine_handle<>>;

}  // namespace detail

/// An awaiter that a task can await and cancel. Thread: all verbs run on the task's home
/// thread.
///
/// `await_ready()` returns true if the operation has ended already and needs no start.
///
/// `await_start(k)` starts the operation, which calls `k.resume()` exactly once when it
/// has ended (from any thread). If it throws, nothing was started.
///
/// `await_cancel()` asks the operation to stop. True: it has stopped now; `k` will not be
/// resumed and nothing of the operation is touched afterwards. False: `k` is or will be
/// resumed (also when it has just ended: a value that won the race is delivered).
///
/// `await_must_resume()` is asked when `k` was resumed. It returns false if the operation
/// ended by cancellation, so that the waiter is cancelled too, and true if there is a
/// value or an exception to deliver.
///
/// `await_resume()` returns the value, or throws.
///
/// `await_early_cancel()` is optional. It is asked instead of starting when the task is
/// cancelled already. True (the default) skips the operation, false performs it all the
/// same.
// clang-format off
template <class A>
concept native_awaiter = requires(A& a, const A& ca, continuation& k) {
  { a.await_ready() } noexcept -> std::same_as<bool>;
  { a.await_start(k) } -> detail::await_start_result;
  { a.await_cancel() } noexcept -> std::same_as<bool>;
  { ca.await_must_resume() } noexcept -> std::same_as<bool>;
  a.await_resume();
};

namespace detail {

template <class A>
concept customizes_early_cancel = requires(A& a) {
  { a.await_early_cancel() } noexcept -> std::same_as<bool>;
};

}  // namespace detail

// clang-format on

namespace detail {

template <class A>
concept has_member_co_await = requires(A&& a) {
  std::forward<A>(a).operator co_await();
};

template <class A>
concept has_free_co_await = requires(A&& a) {
  operator co_await(std::forward<A>(a));
};

/// Returns the awaiter of an awaitable: the result of its `operator co_await`, or the
/// awaitable itself.
template <class A>
decltype(auto) get_awaiter(A&& awaitable) {
  if constexpr (has_member_co_await<A>) {
    return std::forward<A>(awaitable).operator co_await();
  } else if constexpr (has_free_co_await<A>) {
    return operator co_await(std::forward<A>(awaitable));
  } else {
    return std::forward<A>(awaitable);
  }
}

template <class A>
using awaiter_of = decltype(get_awaiter(std::declval<A>()));

}  // namespace detail

/// Holds for what a task can await: a native awaiter, or what any standard coroutine
/// could await.
template <class A>
concept is_awaitable = native_awaiter<std::remove_reference_t<detail::awaiter_of<A>>> ||
    requires(std::remove_reference_t<detail::awaiter_of<A>>& a) {
  a.await_ready();
  a.await_resume();
};

/// The type that `co_await a` gives.
template <class A>
using await_result_t =
    decltype(std::declval<std::remove_reference_t<detail::awaiter_of<A>>&>()
                 .await_resume());

}  // namespace manyworlds::inline v0
