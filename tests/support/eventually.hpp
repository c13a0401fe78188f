// Eventually: for what has no event that a test could wait for, such as a word in shared
// memory, an entry in /proc, or the state of another thread's object.
#pragma once

#include <chrono>
#include <thread>

namespace manyworlds::testing {

/// Looks until it is so. False: it is not so after `limit`.
template <class Condition>
[[nodiscard]] bool eventually(Condition condition,
                              std::chrono::nanoseconds limit = std::chrono::seconds(20)) {
  const auto until = std::chrono::steady_clock::now() + limit;
  while (!condition()) {
    if (std::chrono::steady_clock::now() > until) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return true;
}

}  // namespace manyworlds::testing
