// Links between runtimes of one host, and what they share.
#pragma once

#include "link/local_peer.hpp"
#include "link_fixture.hpp"
#include "support/entries.hpp"
#include "support/eventually.hpp"
#include "world/world_router.hpp"

namespace manyworlds::link_tests {

using testing::eventually;
using testing::open_descriptors;

/// What a service reactor does for a test.
template <class Body>
auto on_service(node& n, Body body, duration limit = 20s) {
  auto there = [](node& n, Body& body) -> decltype(body(access::core(n.rt))) {
    co_return co_await run_on(n.rt.service(), body(access::core(n.rt)));
  };
  return n.run(there(n, body), limit);
}

/// Dials, and waits until it is known whether memory is shared: on both sides if it is,
/// since the one that was dialled hears of it later.
inline bool pair_up(node& from, node& whom) {
  const bool is_shared = on_service(from, [&whom](runtime_core& core) -> task<bool> {
    link_hold l = co_await core.peers().reach(access::core(whom.rt).self(),
                                              core.service().now() + 10s);
    co_return co_await l->local().paired(core.service().now() + 10s);
  });
  if (!is_shared) return false;
  return on_service(whom, [&from](runtime_core& core) -> task<bool> {
    link* const l = core.peers().link_to(access::core(from.rt).self().id);
    if (!l) co_return false;
    co_return co_await l->local().paired(core.service().now() + 10s);
  });
}

/// Of all its links.
inline std::size_t local_links(node& n) {
  return on_service(n, [](runtime_core& core) -> task<std::size_t> {
    std::size_t count = 0;
    for (const auto& l : core.peers().links())
      count += l->local().shares_memory() ? 1 : 0;
    co_return count;
  });
}

inline shm_slot allocate_slot(node& from, node& to_whom, std::uint64_t world_id,
                              rank_t rank) {
  return on_service(from, [&](runtime_core& core) -> task<shm_slot> {
    co_return core.peers()
        .link_to(access::core(to_whom.rt).self().id)
        ->local()
        .allocate_slot(world_id, rank);
  });
}

/// What the other side kept for the world; waits until it is there.
inline std::optional<data_channel> claim(node& by, node& from, std::uint64_t world_id,
                                         rank_t rank) {
  std::optional<data_channel> found;
  auto look = [&](runtime_core& core) -> task<void> {
    found = core.worlds().claim(world_id, rank, access::core(from.rt).self().id);
    co_return;
  };
  CHECK(eventually([&] {
    on_service(by, look);
    return found.has_value();
  }));
  return found;
}

}  // namespace manyworlds::link_tests
