// Plan: what a soak is to do, a function of its seed alone. Every process works it out
// for itself.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "simulation/world_plan.hpp"

namespace manyworlds_tests::soak {

struct settings {
  std::uint64_t seed = 1;
  mw::duration span = 60s;
  std::size_t processes = 8;
  std::size_t worlds = 30;
};

/// How a member comes by the next epoch of a world that broke.
enum class repair : unsigned char {
  kept,      ///< `keep` does it
  reformed,  ///< `reform()`
  shrunk,    ///< `shrink()`, then `grow()`
};

/// Times count from the begin of the soak.
struct planned_world {
  world_plan talk;  ///< its members are slots, by rank
  repair how = repair::kept;
  /// When its members leave, to form it again; at the last they leave for good.
  std::vector<mw::duration> ends;
  /// Nothing is done to any of its members.
  bool is_undisturbed = false;
};

enum class deed : unsigned char { kill, stop, fail };

struct planned_fault {
  deed what = deed::kill;
  mw::duration at{};
  std::size_t slot = 0;
  /// Of a kill: until a successor starts. Of a stop: until it goes on.
  mw::duration span{};
  /// Of `world::fail`, which the slot's process calls if it has that world.
  std::string world;
};

/// What distinguishes the runtime of a slot's processes.
struct planned_runtime {
  bool epoll = false;
  bool shared_memory = true;
  bool read_peers = true;
};

struct plan {
  std::vector<planned_world> worlds;
  std::vector<planned_fault> faults;
  std::vector<planned_runtime> runtimes;  ///< by slot
  /// From then on nothing is done to any process.
  mw::duration healed{};
  /// From then on all say their last.
  mw::duration quiet{};
};

[[nodiscard]] plan plan_of(const settings& s);
[[nodiscard]] std::string text(const planned_fault& f);

}  // namespace manyworlds_tests::soak
