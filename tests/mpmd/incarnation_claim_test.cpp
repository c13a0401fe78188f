// What keeps an instance's earlier processes out of its worlds.
#include "mpmd/incarnation_claim.hpp"

#include <doctest/doctest.h>

#include <chrono>
#include <stdexcept>
#include <string>

#include "manyworlds/coro/within.hpp"
#include "manyworlds/store/memory_store.hpp"
#include "manyworlds/world/runtime.hpp"

namespace mw = manyworlds;
using mw::detail::incarnation_claim;
using namespace std::chrono_literals;

namespace {

const mw::instance_id first_decode{"decode", 0};

/// Incarnations of one instance, and the store of their job.
struct one_instance {
  mw::memory_store keys;
  mw::runtime rt;

  incarnation_claim claim(std::uint64_t incarnation) {
    return {keys, first_decode, incarnation};
  }
  mw::task<bool> is_followed(incarnation_claim& claim, mw::duration limit) {
    try {
      co_await mw::within(claim.until_followed(), limit);
    } catch (const mw::timed_out&) {
      co_return false;
    } catch (const std::runtime_error& e) {
      CHECK(std::string(e.what()).find("of decode.0 has followed") != std::string::npos);
      co_return true;
    }
    co_return false;
  }
};

}  // namespace

TEST_CASE(
    "graph G-a: an incarnation that is followed hears of it, and the next does not") {
  one_instance of;
  incarnation_claim first = of.claim(1);
  // Numbers are left out where a start has failed.
  incarnation_claim later = of.claim(4);
  const auto meet = [&]() -> mw::task<void> {
    co_await first.take();
    const bool is_followed_by_none = co_await of.is_followed(first, 50ms);
    CHECK_FALSE(is_followed_by_none);
    co_await later.take();
    const bool is_first_followed = co_await of.is_followed(first, 10s);
    CHECK(is_first_followed);
    const bool is_later_followed = co_await of.is_followed(later, 50ms);
    CHECK_FALSE(is_later_followed);
  };
  of.rt.run(meet());
}

TEST_CASE("graph G-a: an earlier incarnation that comes late is refused") {
  one_instance of;
  incarnation_claim first = of.claim(1);
  incarnation_claim second = of.claim(2);
  const auto come_late = [&]() -> mw::task<void> {
    co_await second.take();
    co_await first.take();
  };
  CHECK_THROWS_WITH_AS(of.rt.run(come_late()),
                       "incarnation 2 of decode.0 has followed this one, 1: it has its "
                       "place",
                       std::runtime_error);
}

TEST_CASE("graph G-a: a follower that dies between its keys has told its forerunner") {
  one_instance of;
  incarnation_claim first = of.claim(1);
  incarnation_claim third = of.claim(3);
  const auto meet = [&]() -> mw::task<void> {
    co_await first.take();
    co_await of.keys.set("incarnations/decode.0/1", "2");
    const bool is_followed = co_await of.is_followed(first, 10s);
    CHECK(is_followed);
    // And the next one takes the place that the dead one never had.
    co_await third.take();
    const std::string latest = co_await of.keys.get("incarnations/decode.0", 1s);
    CHECK(latest == "3");
  };
  of.rt.run(meet());
}

TEST_CASE("graph G-a: a claim that was lost with its store is taken anew") {
  one_instance of;
  incarnation_claim first = of.claim(1);
  incarnation_claim second = of.claim(2);
  const auto meet = [&]() -> mw::task<void> {
    co_await first.take();
    static_cast<void>(co_await of.keys.erase("incarnations/decode.0"));
    co_await first.take();
    co_await second.take();
    const bool is_followed = co_await of.is_followed(first, 10s);
    CHECK(is_followed);
  };
  of.rt.run(meet());
}
