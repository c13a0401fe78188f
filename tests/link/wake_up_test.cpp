// Wake-ups: for which slots they come, which slots are polled, what is woken.
#include "link/wake_up.hpp"

#include <doctest/doctest.h>

#include <vector>

#include "link/shared_ring_fixture.hpp"

TEST_SUITE_BEGIN("link/shared memory");

using namespace manyworlds::shm;
using namespace manyworlds::detail::shm::testing;

TEST_CASE("a parked slot gets one wake-up for each take") {
  both_ends both;
  CHECK_FALSE(both.sender.notify(200u));
  CHECK_FALSE(both.sender.notify(200u));
  slot_set several;
  several.insert(0);
  several.insert(63);
  several.insert(255);
  CHECK_FALSE(both.sender.notify(several));
  std::vector<unsigned> taken;
  both.receiver.take().for_each([&](unsigned slot) { taken.push_back(slot); });
  CHECK(taken == std::vector<unsigned>{0, 63, 200, 255});
  CHECK(both.receiver.take().empty());
}

TEST_CASE("a polled slot gets no wake-up, and is polled while its ring has something") {
  both_ends both;
  both.receiver.start_polling(70);
  CHECK_FALSE(both.sender.notify(70u));
  CHECK_FALSE(both.receiver.has_wake_ups());
  CHECK_FALSE(both.receiver.park(70, [] { return true; }));
  CHECK_FALSE(both.sender.notify(70u));
  CHECK_FALSE(both.receiver.has_wake_ups());
  CHECK(both.receiver.park(70, [] { return false; }));
  CHECK_FALSE(both.sender.notify(70u));
  CHECK(both.receiver.take().contains(70));
}

TEST_CASE("a sleeper is woken once, and does not sleep over a wake-up") {
  both_ends both;
  const auto nothing = [] { return false; };
  REQUIRE(both.receiver.prepare_sleep(nothing));
  CHECK(both.sender.notify(1u));
  CHECK_FALSE(both.sender.notify(1u));
  both.receiver.cancel_sleep();
  CHECK_FALSE(both.receiver.prepare_sleep(nothing));
  CHECK(both.receiver.take().contains(1));
  CHECK_FALSE(both.receiver.prepare_sleep([] { return true; }));
  CHECK_FALSE(both.sender.notify(2u));
}

TEST_CASE("what the peer scribbles on its own line changes nothing of ours") {
  both_ends both;
  both.receiver.start_polling(3);
  both.shared->receiver.polled[0] = ~std::uint64_t{0};
  both.receiver.start_polling(4);
  CHECK(both.shared->receiver.polled[0] == 0b11000);
}

TEST_SUITE_END();
