// What peers of `accept` and `connect` do in their worlds.
#pragma once

#include <cstdint>
#include <span>
#include <stop_token>

#include "../world/world_fixture.hpp"

namespace manyworlds::world_tests {

/// Sends back each word until the peer leaves.
inline task<void> echo(world& w) {
  for (;;) {
    std::uint64_t word = 0;
    co_await w.recv(std::span(&word, 1), from(1));
    co_await w.send(std::span(&word, 1), to(1));
  }
}

inline task<std::uint64_t> ask(world& w, std::uint64_t word) {
  co_await w.send(std::span(&word, 1), to(0));
  std::uint64_t answer = 0;
  co_await w.recv(std::span(&answer, 1), from(0));
  co_return answer;
}

inline task<void> until_left(world& w) {
  std::uint64_t word = 0;
  co_await w.recv(std::span(&word, 1), from(1 - w.rank()));
}

inline std::int64_t keys_in(node& n, store& st) { return n.run(st.num_keys()); }

}  // namespace manyworlds::world_tests
