// Connect and accept: entries that are taken without effect, or twice.
#include "dispatch_fixture.hpp"
#include "serve/acceptor.hpp"

namespace manyworlds::dispatch_tests {

TEST_SUITE_BEGIN("serve");

namespace {

task<void> wait_until_left(world& w) {
  std::uint64_t word = 0;
  co_await w.recv(std::span(&word, 1), from(1));
}

}  // namespace

TEST_CASE(
    "law 13: a connector that is taken again and again, and never met, warns once, and "
    "goes on waiting") {
  site s;
  process worker(s, "worker");
  int taken = 0, met = 0;
  // As an acceptor of another secret does, which must not say why.
  auto take_three = [&]() -> task<void> {
    join_queue queue(access::core(*s.leader.rt), s.store, "decode");
    while (taken < 3) taken += static_cast<int>((co_await queue.take(1)).size());
  };
  auto meets = [&](world&) -> task<void> {
    ++met;
    co_return;
  };
  auto taking = s.leader.start(take_three());
  auto connected =
      worker.start(connect(*worker.rt, s.store, {.service = "decode"}, meets));
  REQUIRE(s.until([&] { return taken == 2; }));
  CHECK(worker.told.count("an acceptor has taken us", log_level::warning) == 0);
  REQUIRE(s.until([&] { return taken == 3; }));
  s.sim.run_for(20s);
  CHECK(worker.told.count("taken us from the join queue 2 times, but no world was formed",
                          log_level::warning) == 1);
  CHECK(met == 0);
  std::stop_source enough;
  auto accepted = s.leader.start(accept(*s.leader.rt, s.store, {.service = "decode"},
                                        wait_until_left, enough.get_token()));
  REQUIRE(s.until([&] { return connected.is_ready(); }, 30s));
  CHECK(met == 1);
  enough.request_stop();
  worker.end();
}

TEST_CASE("a connector that no acceptor takes says once where it waits, and for what") {
  site s;
  process worker(s, "worker");
  auto never = [](world&) -> task<void> { co_return; };
  auto connected =
      worker.start(connect(*worker.rt, s.store, {.service = "decode"}, never));
  const std::string told = "connect decode: we stand in the join queue of the store " +
                           s.store.address() +
                           ", and no acceptor of the service has taken";
  REQUIRE(s.until([&] { return worker.told.count(told, log_level::warning) == 1; }, 2s));
  s.sim.run_for(5s);
  CHECK(worker.told.count("no acceptor of the service has taken us",
                          log_level::warning) == 1);
  worker.end();
  CHECK(connected.is_ready());
}

TEST_CASE("an acceptor that was slow meets no peer twice: the second entry is dropped") {
  site s;
  join_queue queue(access::core(*s.leader.rt), s.store, "decode");
  auto take_all = [&]() -> task<void> {
    acceptor door(*s.leader.rt, s.store, {.service = "decode"});
    const join_entry slow(1, "first");
    co_await queue.enter(slow);
    auto taken = co_await door.next({});
    REQUIRE(taken.size() == 1);
    auto met = door.meet(std::move(taken[0]));
    co_await queue.enter(slow);
    co_await queue.enter(join_entry(2, "first"));
    taken = co_await door.next({});
    REQUIRE(taken.size() == 1);
    CHECK(taken[0].id == 2);
    // It waits for another world: the one that it has is over, or soon will be.
    co_await queue.enter(join_entry(1, "second"));
    taken = co_await door.next({});
    REQUIRE(taken.size() == 1);
    CHECK(taken[0].id == 1);
    co_await queue.enter(slow);
    met.reset();
    taken = co_await door.next({});
    CHECK(taken.size() == 1);
  };
  s.run(take_all());
}

TEST_SUITE_END();

}  // namespace manyworlds::dispatch_tests
