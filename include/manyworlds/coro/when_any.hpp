// when_any: awaits several operations at once, until the first has ended.
#pragma once

#include <optional>
#include <tuple>
#include <utility>
#include <vector>

#include "manyworlds/detail/branch_group.hpp"

namespace manyworlds::inline v0 {

namespace detail {

/// Takes the task's value if it gave one.
template <class T>
std::optional<storable<T>> take_if_any(task<T>& t) {
  if (t.promise().outcome() != task_outcome::returned) return std::nullopt;
  return take_storable(t);
}

template <class... T>
class when_any_awaiter final : public tuple_branches<T...> {
 public:
  using tuple_branches<T...>::tuple_branches;

  std::tuple<std::optional<storable<T>>...> await_resume() {
    std::tuple<task<T>...> tasks = this->take_tasks();
    return std::apply(
        [](auto&... t) {
          return std::tuple<std::optional<storable<T>>...>{take_if_any(t)...};
        },
        tasks);
  }
};

template <class T>
class when_any_range_awaiter final : public range_branches<T> {
 public:
  using range_branches<T>::range_branches;

  std::vector<std::optional<storable<T>>> await_resume() {
    std::vector<task<T>> tasks = this->take_tasks();
    std::vector<std::optional<storable<T>>> values;
    values.reserve(tasks.size());
    for (task<T>& t : tasks) values.push_back(take_if_any(t));
    return values;
  }
};

template <class... T>
class MANYWORLDS_MUST_AWAIT when_any_awaitable : public not_for_asio {
 public:
  explicit when_any_awaitable(task<T>&&... tasks) noexcept
      : tasks_(std::move(tasks)...) {}
  when_any_awaiter<T...> operator co_await() && noexcept {
    return when_any_awaiter<T...>(branch_rule::wait_for_any, std::move(tasks_));
  }

 private:
  std::tuple<task<T>...> tasks_;
};

template <class T>
class MANYWORLDS_MUST_AWAIT when_any_range : public not_for_asio {
 public:
  explicit when_any_range(std::vector<task<T>>&& tasks) noexcept
      : tasks_(std::move(tasks)) {}
  when_any_range_awaiter<T> operator co_await() && {
    return when_any_range_awaiter<T>(branch_rule::wait_for_any, std::move(tasks_));
  }

 private:
  std::vector<task<T>> tasks_;
};

}  // namespace detail

/// `auto [a, b] = co_await when_any(f(), g())` starts all, left to right, until one ends.
/// It gives a tuple of optionals (`std::monostate` for void).
///
/// The losers are cancelled *and waited for*: their frames are unwound when it gives its
/// values. If a loser still gave a value, that is delivered too, so more than one may be
/// filled. An error beside a value is dropped. Errors: the first error, if none gave a
/// value.
template <class... Awaitables>
requires(sizeof...(Awaitables) > 0) auto when_any(Awaitables&&... awaitables) {
  return detail::when_any_awaitable<typename detail::task_for<Awaitables>::value_type...>(
      detail::as_task(std::forward<Awaitables>(awaitables))...);
}

/// Does the same for a number of tasks known at run time. For none it gives an empty
/// vector, at once. Errors: the first error, if none gave a value.
template <class T>
detail::when_any_range<T> when_any(std::vector<task<T>> tasks) {
  return detail::when_any_range<T>(std::move(tasks));
}

}  // namespace manyworlds::inline v0
