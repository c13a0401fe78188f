// Shrinking a world: who may, and who is waited for.
#include <atomic>
#include <thread>

#include "world/shrink_protocol.hpp"
#include "world_fixture.hpp"

namespace manyworlds::world_tests {

TEST_SUITE_BEGIN("world");

namespace {

const world_options patient{.name = "pair", .form = 10s};
const world_options hasty{.name = "pair", .form = 1s};

task<failure> leaving(world& w) { co_return (co_await outcome(w.leave())).error(); }
task<failure> over(world& w) { co_return co_await w.broken(); }
task<failure> nothing() { co_return failure(); }
task<failure> forming_again(world& w) {
  auto next = co_await outcome(w.reform());
  co_return next.error();
}

}  // namespace

TEST_CASE("only a world that was formed, and not left, can be shrunk") {
  memory_store store;
  node n;
  world w(n.rt, store, {.name = "new", .rank = 0, .size = 2});
  CHECK(n.run(shrinking(w)).cause == cause::not_formed);
  CHECK(w.state() == world_state::described);

  pair p(patient);
  CHECK_FALSE(p.a.run(leaving(p.wa)));
  CHECK(p.a.run(shrinking(p.wa)).cause == cause::closed);
}

TEST_CASE("no member need have died: those that shrink an up world keep their ranks") {
  auto store = std::make_unique<memory_store>();
  node a;
  node b;
  world wa;
  world wb;
  form_two(patient, *store, a, wa, b, wb);
  store = nullptr;
  for (std::uint64_t epoch = 2; epoch < 5; ++epoch) {
    auto first = a.rt.start(shrinking(wa));
    auto second = b.rt.start(shrinking(wb));
    const failure f = a.finish(first);
    const failure g = b.finish(second);
    REQUIRE_MESSAGE(!f, f.text());
    REQUIRE_MESSAGE(!g, g.text());
    CHECK(wa.epoch() == epoch);
    CHECK(wb.epoch() == epoch);
    CHECK(wa.size() == 2);
    CHECK(wb.rank() == 1);
    CHECK(wb.previous_rank_of(1) == 1);
    CHECK(wb.previous_rank_of(2) == no_rank);
    check_alive(a, wa, b, wb);
  }
}

TEST_CASE("law 9: a world that all others have left is formed again at once") {
  pair p;
  auto leaving = [](world& w) -> task<void> { co_await w.leave(); };
  p.b.run(leaving(p.wb));
  CHECK(p.a.run(p.wa.broken()).cause == cause::closed);
  auto again = p.a.rt.start(p.wa.reform());
  world_options options{.name = "pair", .form = 10s};
  options.rank = 1;
  options.size = 2;
  p.wb = world(p.b.rt, p.store, options);
  const failure f = p.b.run(forming(p.wb));
  REQUIRE_MESSAGE(!f, f.text());
  p.wa = p.a.finish(std::move(again));
  CHECK(p.wa.epoch() == 2);
  check_alive(p.a, p.wa, p.b, p.wb);
}

TEST_CASE("a world has one successor, and one who asks for it at a time") {
  pair p(patient);
  auto keeping_both = [](world& w) -> task<failure> {
    const world next = co_await w.shrink();
    co_return (co_await outcome(w.shrink())).error();
  };
  auto first = p.a.rt.start(keeping_both(p.wa));
  auto twice = [](world& w) -> task<failure> {
    const auto both = co_await when_all(why_not(w), why_not(w));
    co_return std::get<0>(both) ? std::get<0>(both) : std::get<1>(both);
  };
  auto second = p.b.rt.start(twice(p.wb));
  CHECK(p.a.finish(first).cause == cause::invalid_argument);
  CHECK(p.b.finish(second).cause == cause::invalid_argument);
}

TEST_CASE(
    "a member that lives and does not call is named, unless the rest have a quorum") {
  pair p(hasty);
  const failure f = p.b.run(shrinking(p.wb));
  CHECK(f.cause == cause::not_joined);
  CHECK(f.rank == 0);
  CHECK(f.detail.find("no majority") != std::string::npos);
  // One of two, and the lowest: it goes on alone, and the other is told.
  CHECK_FALSE(p.a.run(shrinking(p.wa)));
  CHECK(p.wa.size() == 1);
  CHECK(p.b.run(shrinking(p.wb)).cause == cause::expelled);
}

TEST_CASE("who forms the world again, or drops it, is not waited for") {
  for (const bool drops : {false, true}) {
    CAPTURE(drops);
    pair p(patient);
    if (drops) p.wa = world();
    auto again = p.a.rt.start(drops ? nothing() : forming_again(p.wa));
    const auto begun = clock::now();
    CHECK_FALSE(p.b.run(shrinking(p.wb)));
    CHECK(p.wb.size() == 1);
    CHECK(p.wb.previous_rank_of(0) == 1);
    CHECK(clock::now() - begun < patient.form / 2);
    if (!drops) CHECK(p.a.run(shrinking(p.wa)).cause == cause::invalid_argument);
    p.a.rt.stop();
  }
}

TEST_CASE("who leaves a broken world is not waited for, and does not come back") {
  pair p(patient);
  p.wa.fail("the test wants it so");
  CHECK(p.a.run(leaving(p.wa)).cause == cause::broken_by_user);
  const auto begun = clock::now();
  CHECK_FALSE(p.b.run(shrinking(p.wb)));
  CHECK(p.wb.size() == 1);
  CHECK(clock::now() - begun < patient.form / 2);
  CHECK(p.a.run(shrinking(p.wa)).cause == cause::invalid_argument);
}

TEST_CASE("who has gone on says so also when it has left the world it went on to") {
  for (const bool drops : {false, true}) {
    CAPTURE(drops);
    pair p(hasty);
    CHECK_FALSE(p.a.run(shrinking(p.wa)));
    CHECK(p.wa.size() == 1);
    if (drops) {
      p.wa = world();
    } else {
      CHECK_FALSE(p.a.run(leaving(p.wa)));
    }
    CHECK(p.b.run(shrinking(p.wb)).cause == cause::expelled);
  }
}

TEST_CASE("a world that all others have left is closed to shrink(), and formed again") {
  pair p(hasty);
  CHECK_FALSE(p.b.run(leaving(p.wb)));
  CHECK(p.a.run(over(p.wa)).cause == cause::closed);
  CHECK(p.a.run(shrinking(p.wa)).cause == cause::closed);
  // No other member forms it: an error, and no endless wait.
  CHECK(p.a.run(forming_again(p.wa)).cause == cause::not_joined);
}

TEST_CASE("a world is neither shrunk nor formed again once its runtime has ended") {
  memory_store store;
  auto a = std::make_unique<node>();
  node b;
  world wa;
  world wb;
  form_two(patient, store, *a, wa, b, wb);
  a = nullptr;
  CHECK(b.run(shrinking(wa)).cause == cause::runtime_stopped);
  CHECK(b.run(forming_again(wa)).cause == cause::runtime_stopped);
}

TEST_CASE("who shrinks a world of another runtime is told when that ends") {
  memory_store store;
  auto a = std::make_unique<node>();
  node b;
  world wa;
  world wb;
  form_two(patient, store, *a, wa, b, wb);
  // The other member does not call, so that it lasts.
  auto waiting = b.rt.start(why_not(wa));
  const auto limit = clock::now() + 20s;
  while (!access::core(a->rt).is_shrinking() && clock::now() < limit)
    std::this_thread::yield();
  REQUIRE(access::core(a->rt).is_shrinking());
  a = nullptr;
  CHECK(b.finish(waiting).cause == cause::runtime_stopped);
}

TEST_CASE("and when it was kept from looking until that had ended") {
  memory_store store;
  auto a = std::make_unique<node>();
  node b;
  world wa;
  world wb;
  form_two(patient, store, *a, wa, b, wb);
  std::atomic<bool> is_kept = false;
  std::atomic<bool> is_over = false;
  auto keeping = [&]() -> task<bool> {
    is_kept = true;
    is_kept.notify_all();
    is_over.wait(false);
    co_return true;
  };
  auto both = [&]() -> task<failure> {
    const auto all = co_await when_all(why_not(wa), keeping());
    co_return std::get<0>(all);
  };
  auto waiting = b.rt.start(both());
  is_kept.wait(false);
  a = nullptr;
  is_over = true;
  is_over.notify_all();
  CHECK(b.finish(waiting).cause == cause::runtime_stopped);
}

TEST_CASE("a world of another store does not answer for one of the same name") {
  for (const bool is_later : {false, true}) {
    CAPTURE(is_later);
    memory_store one;
    memory_store other;
    node a;
    node b;
    world wa;
    world wb;
    world va;
    world vb;
    form_two(patient, one, a, wa, b, wb);
    form_two(patient, other, a, va, b, vb);
    REQUIRE(wb.epoch() < vb.epoch());
    world& left = is_later ? vb : wb;
    (is_later ? va : wa) = world();
    const auto begun = clock::now();
    const failure f = b.run(shrinking(left));
    CHECK_MESSAGE(!f, f.text());
    CHECK(left.size() == 1);
    CHECK(clock::now() - begun < patient.form / 2);
  }
}

TEST_CASE("a shrinking that is given up can be begun again") {
  pair p(patient);
  auto given_up = [](world& w) -> task<bool> {
    try {
      co_await within(w.shrink(), 200ms);
    } catch (const timed_out&) {
      co_return true;
    }
    co_return false;
  };
  CHECK(p.a.run(given_up(p.wa)));
  auto first = p.a.rt.start(shrinking(p.wa));
  auto second = p.b.rt.start(shrinking(p.wb));
  CHECK_FALSE(p.a.finish(first));
  CHECK_FALSE(p.b.finish(second));
  check_alive(p.a, p.wa, p.b, p.wb);
}

TEST_CASE("an epoch tells its proposer, and is beyond all that were seen") {
  world_view base;
  base.epoch = 7;
  base.members.resize(3);
  CHECK(shrink_protocol::epoch_of(base, 0, 7) == 8);
  CHECK(shrink_protocol::epoch_of(base, 2, 7) == 10);
  for (rank_t proposer = 0; proposer < 3; ++proposer) {
    for (std::uint64_t highest = 7; highest < 30; ++highest) {
      const std::uint64_t epoch = shrink_protocol::epoch_of(base, proposer, highest);
      CHECK(epoch > highest);
      CHECK(epoch <= std::max<std::uint64_t>(highest + 3, 10));
      CHECK((epoch - 8) % 3 == static_cast<std::uint64_t>(proposer));
    }
  }
}

TEST_SUITE_END();

}  // namespace manyworlds::world_tests
