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

/// Holds for an awaiter that ends as cancelled only if its task was asked to stop. A task
/// then need not ask `await_must_resume` before.
template <class A>
concept cancelled_only_if_asked = requires { typename A::cancelled_only_if_asked; };

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

namespace detail {

/// Refuses what cannot be awaited, with one sentence for all functions that await.
template <class A>
constexpr void refuse_to_await() noexcept {
  constexpr bool has_name = is_awaitable<std::remove_cvref_t<A>>;
  static_assert(!has_name,
                "an operation, or a task, that has a name is awaited once, as an rvalue: "
                "std::move it, or await it where it is made");
  static_assert(has_name,
                "this cannot be awaited: it is no task and no operation. Call the "
                "function that gives one");
}

/// The type that awaiting it would give without its name: no further error is printed.
template <class A>
struct refused_await {
  using type = void;
};
template <class A>
requires is_awaitable<std::remove_cvref_t<A>>
struct refused_await<A> {
  using type = await_result_t<std::remove_cvref_t<A>>;
};
template <class A>
using refused_result = typename refused_await<A>::type;

/// Stands for what cannot be awaited.
template <class T>
struct refused_awaiter {
  bool await_ready() const noexcept;
  void await_suspend(std::coroutine_handle<>) const noexcept;
  T await_resume() const;
};

}  // namespace detail

}  // namespace manyworlds::inline v0
