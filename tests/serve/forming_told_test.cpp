// What a member that cannot form its world says meanwhile, in virtual time.
#include "dispatch_fixture.hpp"

namespace manyworlds::dispatch_tests {

TEST_SUITE_BEGIN("serve");

namespace {

task<void> idle(world& w) { (void)co_await w.broken(); }

world_options member(rank_t rank, duration form = 60s) {
  return {.name = "left", .rank = rank, .size = 2, .form = form};
}

}  // namespace

TEST_CASE(
    "a member that waits says so once a second, later every ten, until it is formed") {
  site s;
  (void)s.leader.start(keep(*s.leader.rt, s.store, member(0), idle));
  const std::string_view line = "left: rank 0 of 2 is not in a world after";
  s.sim.run_for(900ms);
  CHECK(s.leader.told.count(line) == 0);
  s.sim.run_for(200ms);
  CHECK(s.leader.told.count("after 1 s: rank 1 has not joined") == 1);
  s.sim.run_for(10s);
  CHECK(s.leader.told.count(line) == 10);
  s.sim.run_for(30s);
  CHECK(s.leader.told.count(line) == 13);
  process other(s, "other");
  std::uint64_t epoch = 0;
  const auto comes = [&](world& w) -> task<void> {
    epoch = w.epoch();
    co_await idle(w);
  };
  (void)other.start(keep(*other.rt, s.store, member(1), comes));
  REQUIRE(s.until([&] { return epoch == 1; }));
  s.sim.run_for(20s);
  CHECK(s.leader.told.count(line) == 13);
  CHECK(other.told.count("left:") == 0);
  s.leader.end();
  other.end();
}

TEST_CASE("a member without rank 0 says that rank 0 has not come") {
  site s;
  (void)s.leader.start(keep(*s.leader.rt, s.store, member(1), idle));
  s.sim.run_for(1500ms);
  CHECK(s.leader.told.count("left: rank 1 of 2 is not in a world after 1 s: rank 0 has "
                            "not proposed a world; did it join?") == 1);
}

TEST_CASE("a member names its store once a second while that is not there") {
  site s;
  const std::string missing = "10.9.9.9:29500";
  tcp_store st(*s.leader.rt, missing);
  (void)s.leader.start(keep(*s.leader.rt, st, member(1), idle));
  s.sim.run_for(3500ms);
  CHECK(s.leader.told.count("tcp://" + missing) >= 3);
  s.leader.end();
}

TEST_CASE("a forming that keep absorbs is told with its reason and the next try") {
  site s;
  (void)s.leader.start(keep(*s.leader.rt, s.store, member(0, 500ms), idle));
  s.sim.run_for(5s);
  CHECK(s.leader.told.count("not formed within 500 ms: rank 1 has not joined") >= 3);
  CHECK(s.leader.told.count("; the next try is in ") >= 3);
}

TEST_SUITE_END();

}  // namespace manyworlds::dispatch_tests
