// Waiting: for what neither CUDA nor NCCL tells, on a thread that may block.
#pragma once

#include <algorithm>
#include <chrono>
#include <thread>

#include "manyworlds/time.hpp"

namespace manyworlds::inline v0::detail::nccl {

/// Looks until `ended()`, more seldom the longer it lasts. Returns false if it did not
/// end by `until`.
template <class Ended>
bool await_polling(Ended&& ended, time_point until = time_point::max()) {
  constexpr duration shortest = std::chrono::microseconds(20);
  constexpr duration longest = std::chrono::milliseconds(2);
  duration pause = shortest;
  while (!ended()) {
    if (std::chrono::steady_clock::now() >= until) return false;
    std::this_thread::sleep_for(pause);
    pause = std::min(pause + pause / 4, longest);
  }
  return true;
}

}  // namespace manyworlds::inline v0::detail::nccl
