// What simulated processes of one host share, and how they notice each other's ends.
#include <doctest/doctest.h>

#include "manyworlds/coro/when_all.hpp"
#include "manyworlds/world/outcome.hpp"
#include "simulation/scenario.hpp"
#include "simulation/world_cluster.hpp"
#include "support/pattern.hpp"

using namespace manyworlds_tests;

namespace {

mw::simulation_options sharing() {
  mw::simulation_options o;
  o.shared_memory = true;
  o.longest_turn = 2us;
  return o;
}

struct membership {
  bool is_up = false;
  std::optional<mw::failure> end;
};

mw::task<void> join(member_process& self, const char* name, mw::rank_t rank,
                    membership& m) {
  mw::world w(self.runtime(), *self.rendezvous,
              {.name = mw::world_name(name), .rank = rank, .size = 2});
  if (!co_await mw::outcome(w)) co_return;
  m.is_up = true;
  m.end = co_await w.broken();
}

/// Messages of 1 MiB, each way at once: both sides copy each, in chunks of a link that
/// all worlds of two processes have together.
struct exchange {
  static constexpr std::size_t bytes = std::size_t{1} << 20;

  mw::task<void> send(mw::world& w) {
    for (unsigned i = 0; i < count; ++i) {
      const auto sent = mw::testing::pattern(bytes, seed + i);
      if (!co_await mw::outcome(w.send(std::span(sent), mw::to{1 - w.rank()}))) co_return;
    }
  }
  mw::task<void> receive(mw::world& w) {
    std::vector<std::uint8_t> got(bytes);
    for (unsigned i = 0; i < count; ++i) {
      if (!co_await mw::outcome(w.recv(std::span(got), mw::from{1 - w.rank()})))
        co_return;
      if (got != mw::testing::pattern(bytes, seed + i)) co_return;
      ++right;
      if (right == leaves_after) co_return co_await w.leave();
    }
  }

  unsigned seed;
  unsigned count = 10;
  unsigned leaves_after = 0;
  unsigned right = 0;
};

mw::task<void> take_part(member_process& self, const char* name, mw::rank_t rank,
                         exchange& of) {
  mw::world w(self.runtime(), *self.rendezvous,
              {.name = mw::world_name(name), .rank = rank, .size = 2});
  co_await w;
  co_await mw::when_all(of.send(w), of.receive(w));
}

void check(cluster& all) {
  const seed_report report = finished(all);
  for (const std::string& each : report.complaints) FAIL_CHECK(each);
}

}  // namespace

TEST_SUITE_BEGIN("simulation");

TEST_CASE("processes on one host share its memory, and no others do") {
  membership near_ends[2];
  membership far_ends[2];
  cluster all(1, sharing());
  member_process& a = all.add("a");
  member_process& beside = all.add("beside", a);
  member_process& far = all.add("far");
  a.start(join(a, "near", 0, near_ends[0]));
  beside.start(join(beside, "near", 1, near_ends[1]));
  a.start(join(a, "far", 0, far_ends[0]));
  far.start(join(far, "far", 1, far_ends[1]));
  REQUIRE(all.run_until(
      [&] {
        return near_ends[0].is_up && near_ends[1].is_up && far_ends[0].is_up &&
               far_ends[1].is_up;
      },
      5s));
  CHECK(all.shared_links() == 1);
  check(all);
}

TEST_CASE(
    "a killed local peer is missed by its liveness futex, also when its sockets say "
    "nothing") {
  for (const std::uint64_t seed : {1u, 2u, 3u, 4u, 5u}) {
    CAPTURE(seed);
    membership at_a;
    membership at_b;
    cluster all(seed, sharing());
    member_process& a = all.add("a");
    member_process& b = all.add("b", a);
    a.start(join(a, "pair", 0, at_a));
    b.start(join(b, "pair", 1, at_b));
    REQUIRE(all.run_until([&] { return at_a.is_up && at_b.is_up; }, 5s));
    REQUIRE(all.shared_links() == 1);
    all.lose_link(a, b, 60s);
    const mw::time_point killed = all.sim.now();
    all.kill(b);
    REQUIRE(all.run_until([&] { return at_a.end.has_value(); }, 1s));
    CHECK(at_a.end->cause == mw::cause::peer_died);
    CHECK(all.sim.now() - killed <= 25ms);
    check(all);
  }
}

TEST_CASE("a stopped local peer is not taken for dead") {
  membership at_a;
  membership at_b;
  cluster all(1, sharing());
  member_process& a = all.add("a");
  member_process& b = all.add("b", a);
  a.start(join(a, "pair", 0, at_a));
  b.start(join(b, "pair", 1, at_b));
  REQUIRE(all.run_until([&] { return at_a.is_up && at_b.is_up; }, 5s));
  all.stop(b, 3s);
  all.run_for(6s);
  CHECK_FALSE(at_a.end);
  CHECK_FALSE(at_b.end);
  check(all);
}

TEST_CASE(
    "laws 1 and 4: a world that is left in the midst of large messages leaves those of "
    "another world on the same link whole") {
  for (const std::uint64_t seed : {1u, 2u, 3u, 4u, 5u}) {
    CAPTURE(seed);
    // The same seed at both ends: both send the same messages.
    exchange left[2]{{.seed = 100}, {.seed = 100, .leaves_after = 3}};
    exchange kept[2]{{.seed = 200}, {.seed = 200}};
    cluster all(seed, sharing());
    member_process& a = all.add("a");
    member_process& b = all.add("b", a);
    a.start(take_part(a, "left", 0, left[0]));
    b.start(take_part(b, "left", 1, left[1]));
    a.start(take_part(a, "kept", 0, kept[0]));
    b.start(take_part(b, "kept", 1, kept[1]));
    REQUIRE(all.run_until([&] { return a.has_ended() && b.has_ended(); }, 20s));
    REQUIRE(all.shared_links() == 1);
    CHECK(kept[0].right == kept[0].count);
    CHECK(kept[1].right == kept[1].count);
    CHECK(left[1].right == left[1].leaves_after);
    CHECK(left[0].right < left[0].count);
    check(all);
  }
}

TEST_SUITE_END();
