// A key is set at the instant at which a wait for it ends (S5).
#include "store/store_race.hpp"

#include <doctest/doctest.h>

#include <chrono>
#include <cstdlib>

#include "manyworlds/store/tcp_store.hpp"
#include "simulation/simulated_node.hpp"
#include "store/store_fixture.hpp"
#include "store/tcp_store_server.hpp"

using namespace manyworlds_tests;

TEST_SUITE_BEGIN("tcp_store");

namespace {

bool is_long_race() { return std::getenv("MANYWORLDS_TEST_LONG") != nullptr; }

}  // namespace

TEST_CASE(
    "S5: by seed, keys are set as the waits for them end: each race has one end, and "
    "later replies belong to later questions") {
  const std::uint64_t seeds = is_long_race() ? 1000 : 10;
  int in_time = 0;
  int too_late = 0;
  for (std::uint64_t seed = 1; seed <= seeds; ++seed) {
    INFO("seed ", seed);
    simulation sim(seed);
    simulated_node host(sim, "host");
    simulated_node user(sim, "user");
    tcp_store_server server(host.home(), host.process().address(29500));
    host.spawn(server.serve());
    tcp_store_options options;
    options.seed = seed;
    // A way there and back is 40 to 200 us.
    tcp_store st(user.home(), server.address().text(), options);
    store_race race(st, st, 3ms, 300us, seed);
    user.spawn(race.run(100));
    REQUIRE(sim.run_until([&] { return user.has_ended(); }));
    user.check();
    user.end();
    server.stop();
    host.end();
    CHECK(server.refused() == 0);
    CHECK(race.unanswered() == 0);
    in_time += race.in_time();
    too_late += race.too_late();
  }
  CHECK(in_time > too_late / 4);
  CHECK(too_late > in_time / 4);
}

TEST_CASE("S5: the same by real clocks, over each engine") {
  for (const engine_kind kind : {engine_kind::io_uring, engine_kind::epoll}) {
    if (kind == engine_kind::io_uring && testing::io_uring_is_refused_here()) continue;
    service_thread of_server(kind);
    hosted_server server(of_server.home(), socket_address::loopback(0));
    service_thread of_clients(kind);
    service_thread of_setter(kind);
    tcp_store st(of_clients.home(), server.address().text());
    tcp_store other(of_setter.home(), server.address().text());
    store_race race(st, other, 1ms, 300us, 1);
    const int races = is_long_race() ? 20'000 : 200;
    sync_wait(within(run_on(of_clients.home(), race.run(races)), 600s));
    CHECK(race.in_time() + race.too_late() + race.unanswered() == races);
    if (is_long_race()) {
      MESSAGE(race.in_time(), " in time, ", race.too_late(), " too late, ",
              race.unanswered(), " unanswered");
    }
    CHECK(server.get().refused() == 0);
  }
}

TEST_SUITE_END();
