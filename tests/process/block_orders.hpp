// A member that gives blocks to those that ask for them, each request on a lane of its
// own.
#pragma once

#include <cstdint>
#include <vector>

#include "manyworlds/mw.hpp"

namespace manyworlds::process_tests {

struct block_request {
  std::uint64_t lane = 0;
  std::uint32_t bytes = 0;
  std::uint32_t blocks = 0;
};

inline task<void> give_blocks(world& w, block_request asked) {
  const std::vector<std::uint64_t> block(asked.bytes / 8, asked.lane);
  for (std::uint32_t i = 0; i < asked.blocks; ++i) {
    // A request that was given up is waited for no longer than this.
    const auto sent = co_await outcome(
        w.send(block, to{0}, lane(asked.lane)).within(std::chrono::seconds(1)));
    if (!sent) co_return;
  }
}

/// Order `give_blocks NAME`: until the world ends.
inline task<void> serve_blocks(world& w) {
  auto serve = [&](scope& s) -> task<void> {
    for (;;) {
      const auto next = co_await w.recv_message<block_request>(from{0}, lane(0));
      s.spawn(give_blocks(w, next.head));
    }
  };
  co_await scope::run(serve);
}

}  // namespace manyworlds::process_tests
