// How worlds end when nothing is wrong.
#include <doctest/doctest.h>

#include <chrono>
#include <memory>

#include "manyworlds/mw.hpp"
#include "world_fixture.hpp"

namespace mw = manyworlds;
using namespace std::chrono_literals;

namespace {

mw::task<void> wait_until_closed(mw::runtime& rt, mw::store& st) {
  mw::world w(rt, st, {.name = "pair", .rank = 1, .size = 2, .form = 10s});
  co_await w;
  (void)co_await w.broken();
}

mw::task<mw::failure> leave_once_formed(mw::runtime& rt, mw::store& st) {
  mw::world w(rt, st, {.name = "pair", .rank = 0, .size = 2, .form = 10s});
  co_await w;
  const auto left = co_await mw::outcome(w.leave());
  co_return left ? mw::failure() : left.error();
}

}  // namespace

TEST_SUITE_BEGIN("world");

TEST_CASE("a runtime that ends as soon as its world is closed breaks it for no member") {
  mw::memory_store st;
  mw::runtime leaving({.log_from = mw::log_level::silent});
  for (int round = 0; round < 100; ++round) {
    CAPTURE(round);
    auto ending = std::make_unique<mw::runtime>(
        mw::runtime_options{.log_from = mw::log_level::silent});
    auto closed = ending->start(wait_until_closed(*ending, st));
    auto left = leaving.start(leave_once_formed(leaving, st));
    REQUIRE(closed.wait_for(20s));
    ending = nullptr;
    REQUIRE(left.wait_for(20s));
    const mw::failure f = left.get();
    CHECK_MESSAGE(!f, f.text());
  }
}

TEST_CASE("law 9: a world that all others have left is formed again at once") {
  mw::world_tests::pair p;
  auto leaving = [](mw::world& w) -> mw::task<void> { co_await w.leave(); };
  p.b.run(leaving(p.wb));
  CHECK(p.a.run(p.wa.broken()).cause == mw::cause::closed);
  auto again = p.a.rt.start(p.wa.reform());
  p.wb = mw::world(p.b.rt, p.store, {.name = "pair", .rank = 1, .size = 2, .form = 10s});
  const mw::failure f = p.b.run(mw::world_tests::forming(p.wb));
  REQUIRE_MESSAGE(!f, f.text());
  p.wa = p.a.finish(std::move(again));
  CHECK(p.wa.epoch() == 2);
  CHECK(p.wa.state() == mw::world_state::up);
}

TEST_CASE("a task that stop() cancels has simply ended, unless a value was asked of it") {
  auto never = []() -> mw::task<void> { co_await mw::sleep_for(1h); };
  auto no_value = []() -> mw::task<int> {
    co_await mw::sleep_for(1h);
    co_return 1;
  };
  for (const bool has_thread : {false, true}) {
    mw::runtime rt;
    auto stops = [&]() -> mw::task<void> {
      rt.stop();
      co_await mw::sleep_for(1h);
    };
    auto stops_value = [&]() -> mw::task<int> {
      co_await stops();
      co_return 1;
    };
    if (has_thread) {
      auto first = rt.start(never());
      auto second = rt.start(no_value());
      rt.stop();
      CHECK_NOTHROW(first.get());
      CHECK_THROWS_AS(second.get(), mw::stopped);
    } else {
      CHECK_NOTHROW(rt.run(stops()));
      CHECK_THROWS_AS(rt.run(stops_value()), mw::stopped);
    }
  }
}

TEST_SUITE_END();
