// Doorbells: what is rung, what is hot, who is woken.
#include "link/doorbell.hpp"

#include <doctest/doctest.h>

#include <vector>

#include "link/shared_ring_fixture.hpp"

TEST_SUITE_BEGIN("link/shared memory");

using namespace manyworlds::shm;
using namespace manyworlds::detail::shm::testing;

TEST_CASE("a slot that is not hot is rung, once for each take") {
  both_ends both;
  CHECK_FALSE(both.ringer.notify(200u));
  CHECK_FALSE(both.ringer.notify(200u));
  slot_set several;
  several.insert(0);
  several.insert(63);
  several.insert(255);
  CHECK_FALSE(both.ringer.notify(several));
  std::vector<unsigned> rung;
  both.listener.take().for_each([&](unsigned slot) { rung.push_back(slot); });
  CHECK(rung == std::vector<unsigned>{0, 63, 200, 255});
  CHECK(both.listener.take().empty());
}

TEST_CASE("a hot slot is not rung, and stays hot while its ring has something") {
  both_ends both;
  both.listener.go_hot(70);
  CHECK_FALSE(both.ringer.notify(70u));
  CHECK_FALSE(both.listener.rung());
  CHECK_FALSE(both.listener.go_cold(70, [] { return true; }));
  CHECK_FALSE(both.ringer.notify(70u));
  CHECK_FALSE(both.listener.rung());
  CHECK(both.listener.go_cold(70, [] { return false; }));
  CHECK_FALSE(both.ringer.notify(70u));
  CHECK(both.listener.take().contains(70));
}

TEST_CASE("a sleeper is woken once, and does not sleep over a bell") {
  both_ends both;
  const auto nothing = [] { return false; };
  REQUIRE(both.listener.prepare_sleep(nothing));
  CHECK(both.ringer.notify(1u));
  CHECK_FALSE(both.ringer.notify(1u));
  both.listener.cancel_sleep();
  CHECK_FALSE(both.listener.prepare_sleep(nothing));
  CHECK(both.listener.take().contains(1));
  CHECK_FALSE(both.listener.prepare_sleep([] { return true; }));
  CHECK_FALSE(both.ringer.notify(2u));
}

TEST_CASE("what the peer scribbles on its own attention changes nothing of ours") {
  both_ends both;
  both.listener.go_hot(3);
  both.shared->attention.hot[0] = ~std::uint64_t{0};
  both.listener.go_hot(4);
  CHECK(both.shared->attention.hot[0] == 0b11000);
}

TEST_SUITE_END();
