// Members that cannot prove the secret: who is told what, and who forms all the same.
#include <unistd.h>

#include "world_fixture.hpp"

namespace manyworlds::world_tests {

namespace {

struct secrets {
  const char* of_leader;
  const char* of_other;
};
constexpr secrets unlike[] = {{"one", "another"}, {"one", ""}, {"", "one"}};

world_options member(rank_t rank, duration form = 20s) {
  return {.name = "secret", .rank = rank, .size = 2, .form = form};
}

void check_named(const failure& f, rank_t refused) {
  CAPTURE(f.text());
  CHECK(f.cause == cause::wrong_secret);
  CHECK(f.operation == operation_kind::form);
  CHECK(f.rank == refused);
  CHECK(f.peer.pid == ::getpid());
  CHECK(!f.peer.host.empty());
  CHECK(f.detail.find("secret") != std::string::npos);
}

}  // namespace

TEST_SUITE_BEGIN("world" * doctest::skip(!can_prove()));

TEST_CASE("members with different secrets, or one of them without, are both told so") {
  for (const secrets& s : unlike) {
    CAPTURE(s.of_leader);
    CAPTURE(s.of_other);
    memory_store store;
    node a({.secret = s.of_leader});
    node b({.secret = s.of_other});
    world wa(a.rt, store, member(0, 2s));
    world wb(b.rt, store, member(1));
    const auto begun = clock::now();
    auto first = a.rt.start(forming(wa));
    auto second = b.rt.start(forming(wb));
    // Rank 0's secret counts: the other need not wait until its time is up.
    check_named(b.finish(second), 0);
    CHECK(clock::now() - begun < 10s);
    // The right member may still come.
    check_named(a.finish(first), 1);
    CHECK(clock::now() - begun >= 2s);
  }
}

TEST_CASE("a stranger in a member's place does not keep the right one from forming") {
  for (const secrets& s : unlike) {
    CAPTURE(s.of_leader);
    CAPTURE(s.of_other);
    memory_store store;
    node leader({.secret = s.of_leader});
    node stranger({.secret = s.of_other});
    node right({.secret = s.of_leader});
    world strange(stranger.rt, store, member(1));
    world w0(leader.rt, store, member(0));
    world w1(right.rt, store, member(1));
    auto lost = stranger.rt.start(forming(strange));
    auto first = leader.rt.start(forming(w0));
    REQUIRE(leader.log.gets("is refused"));
    auto second = right.rt.start(forming(w1));
    CHECK(!right.finish(second));
    CHECK(!leader.finish(first));
    check_alive(leader, w0, right, w1);
    strange = world();
    stranger.finish(lost);
    CHECK(w0.state() == world_state::up);
  }
}

TEST_CASE("a stranger in rank 0's place does not keep the right ones from forming") {
  for (const secrets& s : unlike) {
    CAPTURE(s.of_leader);
    CAPTURE(s.of_other);
    memory_store store;
    node leader({.secret = s.of_leader});
    node stranger({.secret = s.of_other});
    node right({.secret = s.of_leader});
    world strange(stranger.rt, store, member(0));
    world w0(leader.rt, store, member(0));
    world w1(right.rt, store, member(1));
    auto lost = stranger.rt.start(forming(strange));
    auto waits = [](memory_store& st) -> task<void> {
      (void)co_await st.get("mw/secret/join/0", 10s);
    };
    stranger.run(waits(store));
    auto second = right.rt.start(forming(w1));
    auto first = leader.rt.start(forming(w0));
    CHECK(!right.finish(second));
    CHECK(!leader.finish(first));
    check_alive(leader, w0, right, w1);
    strange = world();
    stranger.finish(lost);
    CHECK(w0.state() == world_state::up);
  }
}

TEST_CASE("members with the same secret form a world") {
  pair p({.name = "secret", .form = 10s}, {.secret = "the same"}, {.secret = "the same"});
  check_alive(p.a, p.wa, p.b, p.wb);
}

TEST_SUITE_END();

}  // namespace manyworlds::world_tests
