// Links between runtimes: one for each pair, whichever side dials, and their orderly end.
#include "io/system_environment.hpp"
#include "link_fixture.hpp"
#include "support/eventually.hpp"

namespace manyworlds::link_tests {

TEST_SUITE_BEGIN("link");

namespace {

/// Reaches a peer on the service reactor, where links live; gives the links there are
/// then.
task<std::size_t> reach_it(endpoint& from, process_address whom, reactor& service) {
  link_hold hold = co_await from.reach(whom, service.now() + 10s);
  if (!hold || !hold->is_up()) co_return 0;
  // Held until the other side has had its time to make a second one.
  co_await sleep_for(5ms);
  co_return from.links().size();
}

task<std::size_t> reach_from(runtime& rt, const process_address& whom) {
  return reach_it(access::core(rt).peers(), whom, access::core(rt).service());
}

task<std::size_t> links_of(runtime& rt) {
  auto count = [](runtime& rt) -> task<std::size_t> {
    co_return access::core(rt).peers().links().size();
  };
  co_return co_await run_on(rt.service(), count(rt));
}

}  // namespace

TEST_CASE("two runtimes that dial each other at once have one link, two hundred times") {
  for (int i = 0; i < 200; ++i) {
    CAPTURE(i);
    node a;
    node b;
    auto both = [](runtime& from, const process_address& whom) -> task<std::size_t> {
      co_return co_await run_on(from.service(), reach_from(from, whom));
    };
    auto first = a.rt.start(both(a.rt, access::core(b.rt).self()));
    auto second = b.rt.start(both(b.rt, access::core(a.rt).self()));
    CHECK(a.finish(first) == 1);
    CHECK(b.finish(second) == 1);
  }
}

TEST_CASE("all worlds of two runtimes share one link, which outlives each of them") {
  memory_store store;
  node a;
  node b;
  std::vector<world> all;
  for (int i = 0; i < 8; ++i) {
    const std::string name = "w" + std::to_string(i);
    all.emplace_back(a.rt, store,
                     world_options{.name = name, .rank = 0, .size = 2, .form = 10s});
    all.emplace_back(b.rt, store,
                     world_options{.name = name, .rank = 1, .size = 2, .form = 10s});
    auto first = a.rt.start(forming(all[all.size() - 2]));
    CHECK(!b.run(forming(all.back())));
    CHECK(!a.finish(first));
  }
  CHECK(a.run(links_of(a.rt)) == 1);
  all[0].fail("one of them");
  CHECK(b.run(all[1].broken()).cause == cause::broken_by_user);
  for (std::size_t i = 2; i < all.size(); i += 2) check_alive(a, all[i], b, all[i + 1]);
  for (std::size_t i = 2; i < all.size(); i += 2) a.run(all[i].leave());
  // No world uses it now; it lingers for the next world.
  CHECK(a.run(links_of(a.rt)) == 1);
}

TEST_CASE("a link that nothing uses says goodbye in the end, on both sides") {
  memory_store store;
  node a;
  node b;
  {
    world wa(a.rt, store, {.name = "brief", .rank = 0, .size = 2, .form = 10s});
    world wb(b.rt, store, {.name = "brief", .rank = 1, .size = 2, .form = 10s});
    auto first = a.rt.start(forming(wa));
    CHECK(!b.run(forming(wb)));
    CHECK(!a.finish(first));
    a.run(wa.leave());
    b.run(wb.broken());
  }
  CHECK(a.run(links_of(a.rt)) == 1);
  CHECK(testing::eventually([&] { return a.run(links_of(a.rt)) == 0; }, 15s));
  CHECK(testing::eventually([&] { return b.run(links_of(b.rt)) == 0; }, 15s));
}

TEST_CASE("a peer that is not there, or is another one, is named when it is dialled") {
  node a;
  node b;
  auto try_it = [](runtime& from, process_address whom) -> task<cause> {
    cause why = cause::none;
    try {
      co_await run_on(from.service(), reach_from(from, whom));
    } catch (const link_error& e) {
      why = e.cause();
    }
    co_return why;
  };
  process_address absent = stranger();
  CHECK(a.run(try_it(a.rt, absent)) == cause::peer_died);
  // Another incarnation lives there.
  absent.endpoint = access::core(b.rt).self().endpoint;
  CHECK(a.run(try_it(a.rt, absent)) == cause::peer_died);
  if (!can_prove()) return;
  node guarded({.secret = "guarded"});
  CHECK(a.run(try_it(a.rt, access::core(guarded.rt).self())) == cause::wrong_secret);
}

TEST_CASE(
    "reaching a peer ends at its deadline, also if the peer says late that it dials") {
  node a;
  node b;
  // Greets after most of the time is over, and never dials.
  auto decline = [](runtime& rt, listener& at) -> task<void> {
    const io_result accepted = co_await at.accept();
    stream s(access::core(rt).service(),
             socket(access::core(rt).service().sockets(), accepted.handle()));
    system_environment env;
    greeter g(env, stranger(), {});
    co_await sleep_for(800ms);
    const std::function<hello_status(const hello&)> declines = [](const hello&) {
      return hello_status::already_dialling;
    };
    CHECK(!co_await g.answer(s, declines));
  };
  auto reach = [](runtime& rt, process_address whom) -> task<duration> {
    const time_point begun = rt.service().now();
    try {
      (void)co_await access::core(rt).peers().reach(std::move(whom), begun + 1s);
    } catch (const link_error& e) {
      CHECK(e.cause() == cause::silent_peer);
    }
    co_return rt.service().now() - begun;
  };
  auto on_service = [](runtime& rt, task<duration> t) -> task<duration> {
    co_return co_await run_on(rt.service(), std::move(t));
  };
  listener at(access::core(b.rt).service(), socket_address::loopback(0));
  process_address whom = stranger();
  whom.endpoint = at.address();
  auto declined = b.rt.start_service(decline(b.rt, at));
  CHECK(a.run(on_service(a.rt, reach(a.rt, whom))) < 1500ms);
  declined.get();
}

TEST_CASE("a runtime that ends says goodbye: its peers see it stopped, at once") {
  memory_store store;
  node a;
  auto b = std::make_unique<node>();
  world wa(a.rt, store, {.name = "ends", .rank = 0, .size = 2, .form = 10s});
  auto wb = std::make_unique<world>(
      b->rt, store, world_options{.name = "ends", .rank = 1, .size = 2, .form = 10s});
  auto first = a.rt.start(forming(wa));
  CHECK(!b->run(forming(*wb)));
  CHECK(!a.finish(first));
  const auto begun = clock::now();
  b = nullptr;
  CHECK(clock::now() - begun < 2s);
  const failure f = a.run(wa.broken());
  CHECK(f.cause == cause::runtime_stopped);
  CHECK(f.rank == 1);
  // The handle may outlive its runtime.
  CHECK(wb->failure().cause == cause::runtime_stopped);
}

TEST_SUITE_END();

}  // namespace manyworlds::link_tests
