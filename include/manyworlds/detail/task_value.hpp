// Task value: what a function gives, after an await where it is a task.
#pragma once

#include "manyworlds/coro/task.hpp"

namespace manyworlds::inline v0::detail {

template <class T>
struct task_value {
  static constexpr bool is_task = false;
  using type = T;
};
template <class T>
struct task_value<task<T>> {
  static constexpr bool is_task = true;
  using type = T;
};

}  // namespace manyworlds::inline v0::detail
