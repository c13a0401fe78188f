// Worlds in which small collectives go through pages.
#pragma once

#include <algorithm>
#include <deque>
#include <vector>

#include "collective_fixture.hpp"

namespace manyworlds::host_tests {

inline host_backend_options on_one_host() {
  host_backend_options o;
  o.one_host = true;
  o.world_id = 0x1234567;
  return o;
}

/// Rounds are for members that each have a CPU.
inline host_backend_options with_cpus(rank_t cpus) {
  host_backend_options o = on_one_host();
  o.cpus = cpus;
  return o;
}

inline std::vector<ground> page_grounds() {
  std::vector<ground> all;
  for (const ground g : all_grounds()) {
    if (is_shared(g)) all.push_back(g);
  }
  return all;
}

inline void carry_out_run(cluster& c, collective_run& all) {
  all.start(c);
  REQUIRE(c.until([&] { return all.ended(); }));
  all.check();
  for (rank_t r = 0; r < all.size; ++r) CHECK(c[r].events.reason == "");
}

inline void barriers(cluster& c, rank_t size, int times) {
  for (int i = 0; i < times; ++i) {
    std::deque<barrier_op> ops(static_cast<std::size_t>(size));
    for (rank_t r = 0; r < size; ++r) c.at(r).start(ops[static_cast<std::size_t>(r)]);
    REQUIRE(c.until([&] {
      return std::all_of(ops.begin(), ops.end(), [](auto& op) { return op.done(); });
    }));
  }
}

inline std::uint64_t messages_of(cluster& c, rank_t size) {
  std::uint64_t all = 0;
  for (rank_t r = 0; r < size; ++r) all += c.at(r).counters().messages_sent;
  return all;
}

/// A world in which collectives go through pages from now on.
struct paged {
  explicit paged(rank_t size, ground g = ground::shared_simulated,
                 host_backend_options o = on_one_host())
      : c(size, g, o), size(size) {
    barriers(c, size, 16);
  }
  cluster c;
  rank_t size;
};

}  // namespace manyworlds::host_tests
