// The awaiter protocol of the library: the standard verbs, plus cancellation as a verb of
// the awaiter.
//
// The model is corral's (Hudson River Trading, corral/concepts.h): the parent asks its
// current awaiter to stop, recursively down to the leaf, which answers "stopped now" or
// "I will resume you later". Differences: an awaiter is started with a `continuation`
// instead of a coroutine handle, so that cancellation needs no forged coroutine frames;
// and a cancelled task is not resumed at all: its frame is destroyed by its owner, locals
// unwinding leaf first.
#pragma once

#include <concepts>
#include <coroutine>
#include <type_traits>
#include <utility>

#include "manyworlds/coro/continuation.hpp"

namespace manyworlds::inline v0 {

/// What `await_start` may return: nothing (suspended), bool (false: it has ended already,
/// go on), or the handle to run next.
template <class T>
concept await_start_result = std::is_void_v<T> || std::same_as<T, bool> ||
    std::convertible_to<T, std::coroutine_handle<>>;

/// An awaiter a task can await and cancel. All verbs on the task's home thread.
///
/// `await_ready()`: it has ended already, there is nothing to start.
///
/// `await_start(k)`: start, and call `k.resume()` exactly once when ended (from any
/// thread). If it throws, nothing was started.
///
/// `await_cancel()`: stop. True: stopped now; `k` will not be resumed and nothing of the
/// operation is touched any more. False: `k` is or will be resumed (also when it has just
/// ended: a value that won the race is delivered).
///
/// `await_must_resume()`: asked when `k` was resumed. False if the operation ended by
/// cancellation, so that the waiter is cancelled too; true if there is a value or an
/// exception to deliver.
///
/// `await_resume()`: the value, or throws.
///
/// Optional: `await_early_cancel()`, asked instead of starting when the task is cancelled
/// already. True (the default) skips the operation, false performs it all the same.
// clang-format off
template <class A>
concept native_awaiter = requires(A& a, const A& ca, continuation& k) {
  { a.await_ready() } noexcept -> std::same_as<bool>;
  { a.await_start(k) } -> await_start_result;
  { a.await_cancel() } noexcept -> std::same_as<bool>;
  { ca.await_must_resume() } noexcept -> std::same_as<bool>;
  a.await_resume();
};

template <class A>
concept customizes_early_cancel = requires(A& a) {
  { a.await_early_cancel() } noexcept -> std::same_as<bool>;
};
// clang-format on

template <class A>
concept has_member_co_await = requires(A&& a) {
  std::forward<A>(a).operator co_await();
};
template <class A>
concept has_free_co_await = requires(A&& a) {
  operator co_await(std::forward<A>(a));
};

/// The awaiter of an awaitable: the result of its `operator co_await`, or the awaitable
/// itself.
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

/// Can be awaited in a task: a native awaiter, or what any standard coroutine could
/// await.
template <class A>
concept is_awaitable = native_awaiter<std::remove_reference_t<awaiter_of<A>>> ||
    requires(std::remove_reference_t<awaiter_of<A>>& a) {
  a.await_ready();
  a.await_resume();
};

/// What `co_await a` gives.
template <class A>
using await_result_t =
    decltype(std::declval<std::remove_reference_t<awaiter_of<A>>&>().await_resume());

}  // namespace manyworlds::inline v0
