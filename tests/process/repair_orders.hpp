// Orders that give a broken world its next epoch, as member.cpp lists them.
#pragma once

#include <string>

#include "traffic_orders.hpp"

namespace manyworlds::process_tests {

/// "E RANK SIZE OLD,OLD...": where a member finds itself, and who the others were.
inline std::string place_in(const world& w) {
  std::string text = std::to_string(w.epoch()) + " " + std::to_string(w.rank()) + " " +
                     std::to_string(w.size()) + " ";
  for (rank_t r = 0; r < w.size(); ++r) {
    text += (r > 0 ? "," : "") + std::to_string(w.previous_rank_of(r));
  }
  return text;
}

/// Ends when the new epoch is over, which it tells.
inline task<void> repair(world& w, const words& order) {
  const std::string how = order[0];
  if (how == "shrink") w = co_await w.shrink();
  if (how == "grow") w = co_await w.grow();
  if (how == "reform") w = co_await w.reform();
  tell("again " + order[1] + " " + place_in(w));
  const failure f = co_await w.broken();
  tell("over " + order[1] + " " + std::string(name_of(f.cause)) + " " +
       std::to_string(f.rank) + " " + std::to_string(f.peer.pid));
}

inline task<void> pass_barrier(world& w, const words& order) {
  co_await w.barrier();
  tell("passed " + order[1]);
}

}  // namespace manyworlds::process_tests
