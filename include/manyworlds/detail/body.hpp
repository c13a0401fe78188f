// Bodies: callables that a function of the library keeps and calls, and the g++ 12 bug
// with temporary ones.
#pragma once

#include <type_traits>
#include <utility>

#include "manyworlds/coro/task.hpp"

namespace manyworlds::inline v0::detail {

/// True if the compiler destroys a temporary closure or aggregate twice where its
/// full-expression awaits.
///
/// g++ 12 builds each captured object beside the closure, copies it into the closure bit
/// by bit, and destroys both. The closure is broken before any function sees it, no
/// matter how the parameter is declared. `tests/coro/closure_test.cpp` holds the proof.
#if defined(__GNUC__) && !defined(__clang__) && __GNUC__ < 13
inline constexpr bool frees_temporary_closures_twice = true;
#else
inline constexpr bool frees_temporary_closures_twice = false;
#endif

/// True if T may be a closure that captures objects, or an aggregate of them. Such a
/// closure cannot be assigned to, and is no specialization of a template. The result of
/// `std::bind_front` is one: there the callable counts.
template <class T>
struct may_be_closure
    : std::bool_constant<std::is_class_v<T> && !std::is_trivially_destructible_v<T> &&
                         (std::is_aggregate_v<T> || !std::is_move_assignable_v<T>)> {};
template <template <class...> class Template, class Callable, class... Others>
struct may_be_closure<Template<Callable, Others...>>
    : std::bool_constant<std::is_aggregate_v<Template<Callable, Others...>> ||
                         may_be_closure<Callable>::value> {};

/// True if an argument of this type, as deduced for a parameter `F&&`, may be such a
/// temporary that is destroyed twice.
template <class F>
inline constexpr bool may_be_freed_twice =
    frees_temporary_closures_twice && !std::is_lvalue_reference_v<F> &&
    !std::is_trivially_destructible_v<std::remove_cvref_t<F>> &&
    may_be_closure<std::remove_cvref_t<F>>::value;

/// Holds the one error text for all functions that take a callable.
template <bool MayBeFreedTwice>
constexpr void refuse_to_await_closure() noexcept {
  static_assert(
      !MayBeFreedTwice,
      "g++ 12 destroys what a temporary lambda captures by value twice in an awaited "
      "expression. Capture by reference, [&]: it lives long enough; or name the lambda "
      "in a statement before and pass the name; or name the task, mw::task<void> kept = "
      "..., and co_await std::move(kept); or write std::bind_front([](const config& cfg, "
      "mw::world& w) -> mw::task<void> {...}, cfg)");
}

/// A task that keeps a callable which was written in the call that made the task. It may
/// be spawned, started, or made a named `task<T>`, where g++ 12 makes no mistake.
/// Awaiting it at once does not compile.
template <class T>
class MANYWORLDS_MUST_AWAIT task_with_closure : public task<T> {
 public:
  explicit task_with_closure(task<T>&& t) noexcept : task<T>(std::move(t)) {}
  task_awaiter<T> operator co_await() && {
    refuse_to_await_closure<sizeof(T*) != 0>();
    return std::move(*this).task<T>::operator co_await();
  }
};

template <class Awaitable>
inline constexpr bool keeps_closure = false;
template <class T>
inline constexpr bool keeps_closure<task_with_closure<T>> = true;

/// Returns the task itself, for code that starts it and does not await it.
template <class T>
[[nodiscard]] task<T> take_task(task<T>&& t) noexcept {
  return std::move(t);
}

/// The return type of a function that keeps callables of these types.
template <class... Kept>
using task_keeping = std::conditional_t<(may_be_freed_twice<Kept> || ...),
                                        task_with_closure<void>, task<void>>;

}  // namespace manyworlds::inline v0::detail
