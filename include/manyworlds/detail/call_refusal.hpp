// Call refusal: compiler errors that say what to write instead of an argument that fits
// no function.
#pragma once

#include <chrono>
#include <concepts>
#include <type_traits>

#include "manyworlds/detail/config.hpp"

namespace manyworlds::inline v0::detail {

/// A number, or a bool, where a span of time is meant.
template <class T>
concept no_span = std::is_arithmetic_v<T>;

template <class T>
constexpr void refuse_number() noexcept {
  static_assert(std::is_void_v<T>,
                "a span of time needs a unit: 5s or 200ms (using namespace "
                "std::chrono_literals), or std::chrono::milliseconds(n)");
}

/// A number where a rank is meant. It could be a lane or a count as well.
template <class T>
concept no_rank_name = std::integral<std::remove_cvref_t<T>>;

template <class T>
constexpr void refuse_rank() noexcept {
  static_assert(
      std::is_void_v<T>,
      "a rank says what it is for: mw::to{1} in a send, mw::from{1} or mw::any in "
      "a receive, mw::root{0} in a collective");
}

template <class T>
constexpr void refuse_without_reduction() noexcept {
  static_assert(std::is_void_v<T>,
                "a reduction is missing: give mw::sum, mw::prod, mw::max, mw::min or "
                "mw::avg behind the buffers");
}

/// What is given to `run` or `start` and is no task.
template <class T>
concept no_task = !requires(std::remove_cvref_t<T> & t) {
  t.promise();
  t.reset();
};

template <class T>
constexpr void refuse_to_start() noexcept {
  static_assert(
      std::is_void_v<T>,
      "run and start take a task: call the function that gives it; "
      "mw::call_in_task(f) keeps a lambda that captures; an operation is awaited "
      "inside of a task. A task that has a name is given by std::move, once");
}

}  // namespace manyworlds::inline v0::detail
