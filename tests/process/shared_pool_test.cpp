// Messages out of a peer's shared pool, and what the peer's end does to them.
#include <fstream>

#include "process_fixture.hpp"
#include "support/eventually.hpp"

namespace manyworlds::process_tests {

TEST_SUITE_BEGIN("process");

namespace {

constexpr std::size_t message_bytes = std::size_t{24} << 20;

/// A member that streams out of a pool, which we read or map.
process streamer(const site& here, const std::string& world) {
  process p = here.worker(world, {"pool=" + std::to_string(2 * message_bytes)});
  p.order("stream " + world + " 0 " + std::to_string(message_bytes) + " 1000000");
  return p;
}

/// A file that this process has mapped: "manyworlds-pool".
bool has_mapped_a_pool() {
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);) {
    if (line.find("manyworlds-pool") != std::string::npos) return true;
  }
  return false;
}

}  // namespace

TEST_CASE("a peer's pool is mapped, also where its memory is not read, and then let go") {
  for (const bool reads : {true, false}) {
    CAPTURE(reads);
    site here(engine_kind::epoll);
    process other = streamer(here, "pooled");
    leader us(here, 200ms, nullptr, reads);
    world w = us.form("pooled");
    received seen;
    us.run(take_stream(w, 1, message_bytes, seen, [&] { return seen.messages == 20; }));
    CHECK(seen.in_order);
    CHECK(has_mapped_a_pool());
    other.kill();
    CHECK(us.broken(w).cause == cause::peer_died);
    us.run(w.drained());
    w = {};
    CHECK(testing::eventually([] { return !has_mapped_a_pool(); }));
  }
}

TEST_CASE("a peer killed while its pool is copied is an error, never half a message") {
  for (const engine_kind e : engines()) {
    for (std::uint64_t round = 1; round <= 5; ++round) {
      CAPTURE(name_of(e));
      site here(e);
      process other = streamer(here, "killed");
      leader us(here, 200ms, nullptr, false);
      world w = us.form("killed");
      received seen;
      auto taking =
          us.rt.start(take_stream(w, 1, message_bytes, seen, [] { return false; }));
      us.run(seen.come(round));
      other.kill();
      us.finish(std::move(taking));
      CHECK(seen.in_order);
      CHECK(seen.error.cause == cause::peer_died);
    }
  }
}

TEST_CASE("a peer stopped while its pool is copied costs nothing but its own silence") {
  site here(engine_kind::epoll);
  process other = streamer(here, "stopped");
  leader us(here, 200ms, nullptr, false);
  us.patience.broken_after = 2s;
  world w = us.form("stopped");
  received seen;
  auto taking = us.rt.start(take_stream(w, 1, message_bytes, seen, [] { return false; }));
  us.run(seen.come(2));
  other.stop();
  us.finish(std::move(taking));
  CHECK(seen.in_order);
  CHECK(seen.error.cause == cause::silent_peer);
  other.go_on();
  other.expect("over stopped");
}

TEST_SUITE_END();

}  // namespace manyworlds::process_tests
