// when_all: awaits several operations at once and gives all of their values.
#pragma once

#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "manyworlds/detail/branch_group.hpp"

namespace manyworlds::inline v0 {

namespace detail {

template <class... T>
class when_all_awaiter final : public tuple_branches<T...> {
 public:
  using tuple_branches<T...>::tuple_branches;

  std::tuple<storable<T>...> await_resume() {
    std::tuple<task<T>...> tasks = this->take_tasks();
    return std::apply(
        [](auto&... t) { return std::tuple<storable<T>...>{take_storable(t)...}; },
        tasks);
  }
};

template <class T>
class when_all_range_awaiter final : public range_branches<T> {
 public:
  using range_branches<T>::range_branches;

  auto await_resume() {
    std::vector<task<T>> tasks = this->take_tasks();
    if constexpr (!std::is_void_v<T>) {
      std::vector<storable<T>> values;
      values.reserve(tasks.size());
      for (task<T>& t : tasks) values.push_back(take_storable(t));
      return values;
    }
  }
};

template <class... T>
class MANYWORLDS_MUST_AWAIT when_all_awaitable : public not_for_asio {
 public:
  explicit when_all_awaitable(task<T>&&... tasks) noexcept
      : tasks_(std::move(tasks)...) {}
  when_all_awaiter<T...> operator co_await() && noexcept {
    return when_all_awaiter<T...>(branch_rule::wait_for_all, std::move(tasks_));
  }

 private:
  std::tuple<task<T>...> tasks_;
};

template <class T>
class MANYWORLDS_MUST_AWAIT when_all_range : public not_for_asio {
 public:
  explicit when_all_range(std::vector<task<T>>&& tasks) noexcept
      : tasks_(std::move(tasks)) {}
  when_all_range_awaiter<T> operator co_await() && {
    return when_all_range_awaiter<T>(branch_rule::wait_for_all, std::move(tasks_));
  }

 private:
  std::vector<task<T>> tasks_;
};

}  // namespace detail

/// `auto [a, b] = co_await when_all(f(), g())` starts all, left to right, and gives a
/// tuple of their values (`std::monostate` for void).
///
/// If one fails the others are cancelled. A cancellation cancels all: values that some
/// had given already are destroyed then. Errors: the first error, when all have ended.
template <class... Awaitables>
requires(sizeof...(Awaitables) > 0) auto when_all(Awaitables&&... awaitables) {
  return detail::when_all_awaitable<typename detail::task_for<Awaitables>::value_type...>(
      detail::as_task(std::forward<Awaitables>(awaitables))...);
}

/// Does the same for a number of tasks known at run time. Gives a vector of values, or
/// nothing. Errors: the first error, when all have ended.
template <class T>
detail::when_all_range<T> when_all(std::vector<task<T>> tasks) {
  return detail::when_all_range<T>(std::move(tasks));
}

}  // namespace manyworlds::inline v0
