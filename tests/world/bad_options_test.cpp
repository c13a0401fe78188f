// Worlds that cannot be formed as described: each has its own error, which names what is
// wrong.
#include <unistd.h>

#include "world_fixture.hpp"

namespace manyworlds::world_tests {

TEST_SUITE_BEGIN("world");

TEST_CASE("wrong options are named when the world is awaited, and nothing is started") {
  struct wrong {
    const char* names;
    world_options options;
  };
  const wrong all[] = {
      {"a name", {.rank = 0, .size = 2}},
      {"rank 2 in a world of 2", {.name = "w", .rank = 2, .size = 2}},
      {"rank -1 in a world of 2", {.name = "w", .rank = -1, .size = 2}},
      {"a world cannot have 0 members", {.name = "w", .rank = 0, .size = 0}},
      {"a world cannot have -3 members", {.name = "w", .rank = 0, .size = -3}},
      {"at most 4096", {.name = "w", .rank = 0, .size = 5000}},
      {"form", {.name = "w", .rank = 0, .size = 2, .form = 0s}},
      {"drain", {.name = "w", .rank = 0, .size = 2, .drain = -1s}},
      {"broken_after",
       {.name = "w", .rank = 0, .size = 2, .suspect_after = 2s, .broken_after = 1s}},
      {"suspect_after", {.name = "w", .rank = 0, .size = 2, .suspect_after = 0s}},
      {"stall", {.name = "w", .rank = 0, .size = 2, .stall = 0s}},
      {"collective_break",
       {.name = "w", .rank = 0, .size = 2, .collective_log = 2s, .collective_break = 1s}},
  };
  memory_store store;
  node n;
  for (const wrong& each : all) {
    CAPTURE(each.names);
    world w(n.rt, store, each.options);
    CHECK(w.state() == world_state::described);
    const failure f = n.run(forming(w));
    CHECK(f.cause == cause::invalid_argument);
    CHECK(f.operation == operation_kind::form);
    CHECK(f.detail.find(each.names) != std::string::npos);
    CHECK(w.state() == world_state::broken);
    CHECK(access::core(n.rt).worlds().snapshot().empty());
    // It stays so, at once.
    CHECK(n.run(forming(w)).detail == f.detail);
    auto written = [](memory_store& s) -> task<bool> {
      co_return (co_await s.try_get("mw/w/join/0")).has_value();
    };
    CHECK(!n.run(written(store)));
  }
}

TEST_CASE("a name of 63 bytes is the longest; a longer one throws, naming it") {
  CHECK(world_name(std::string(63, 'x')).size() == 63);
  const std::string longer = "too-long-" + std::string(64, 'x');
  try {
    const world_options o{.name = longer};
    FAIL("accepted " << o.name.view());
  } catch (const std::length_error& e) {
    CHECK(std::string(e.what()).find(longer) != std::string::npos);
    CHECK(std::string(e.what()).find("63") != std::string::npos);
  }
}

TEST_CASE(
    "a rank that a living process holds is rank_taken, naming host and pid; the world "
    "goes on") {
  pair p;
  node third;
  world late(third.rt, p.store, {.name = "pair", .rank = 1, .size = 2, .form = 600ms});
  const failure f = third.run(forming(late));
  CHECK(f.cause == cause::rank_taken);
  CHECK(f.rank == 1);
  CHECK(f.peer.pid == ::getpid());
  CHECK(!f.peer.host.empty());
  CHECK(f.text().find(std::to_string(::getpid())) != std::string::npos);
  check_alive(p.a, p.wa, p.b, p.wb);
  CHECK(p.wa.epoch() == 1);
}

TEST_CASE("members that disagree on the size are both told, with both sizes") {
  memory_store store;
  node a;
  node b;
  world wa(a.rt, store, {.name = "sizes", .rank = 0, .size = 2, .form = 10s});
  world wb(b.rt, store, {.name = "sizes", .rank = 1, .size = 3, .form = 10s});
  auto first = a.rt.start(forming(wa));
  auto second = b.rt.start(forming(wb));
  for (const failure& f : {a.finish(first), b.finish(second)}) {
    CHECK(f.cause == cause::size_disagrees);
    CHECK(f.detail.find("size 2") != std::string::npos);
    CHECK(f.detail.find("size 3") != std::string::npos);
  }
}

TEST_CASE("a store that does not answer is store_unreachable, by the deadline") {
  node n;
  // Nothing listens at port 1.
  tcp_store nowhere(n.rt, "127.0.0.1:1");
  world w(n.rt, nowhere, {.name = "far", .rank = 0, .size = 2, .form = 500ms});
  const auto begun = clock::now();
  const failure f = n.run(forming(w));
  CHECK(f.cause == cause::store_unreachable);
  CHECK(clock::now() - begun < 3s);
  const std::string why =
      "the store tcp://127.0.0.1:1 cannot be reached: connecting: Connection refused";
  CHECK_MESSAGE(f.detail.find(why) != std::string::npos, f.text());
  // And said in the log before.
  CHECK(n.log.gets("far is not formed yet: " + why));
  n.run(w.drained());
}

TEST_CASE("a world of one member forms alone, and its barrier is immediate") {
  memory_store store;
  node n;
  world w(n.rt, store, {.name = "alone", .rank = 0, .size = 1, .form = 5s});
  CHECK(!n.run(forming(w)));
  auto body = [&]() -> task<void> {
    co_await w.barrier();
    co_await w.leave();
  };
  n.run(body());
  CHECK(w.failure().cause == cause::closed);
}

TEST_SUITE_END();

}  // namespace manyworlds::world_tests
