// The book of a shared link's slots: both sides of it, and a peer that lies.
#include "link/slot_pool.hpp"

#include <doctest/doctest.h>

#include <set>
#include <string>
#include <thread>

#include "link/data_channel.hpp"
#include "link/wire.hpp"

using namespace manyworlds;
using namespace manyworlds::shm;

TEST_SUITE_BEGIN("slot_pool");

namespace {

slot_set only(unsigned slot) {
  slot_set set;
  set.insert(slot);
  return set;
}

std::string error_of_taking(slot_pool& r, unsigned slot) {
  try {
    r.take_from_peer(slot);
  } catch (const wire_error& e) {
    return e.what();
  }
  return {};
}

}  // namespace

TEST_CASE("each side hands out its own half of the slots, the lowest first") {
  for (const int side : {0, 1}) {
    slot_pool mine(side);
    slot_pool theirs(1 - side);
    unsigned expected = static_cast<unsigned>(side);
    while (const auto slot = mine.find_free()) {
      CHECK(*slot == expected);
      mine.take(*slot);
      CHECK(error_of_taking(theirs, *slot).empty());
      expected += 2;
    }
    CHECK(expected == slot_count + static_cast<unsigned>(side));
    // The other half is the other side's still.
    CHECK(theirs.find_free() == static_cast<unsigned>(1 - side));
  }
}

TEST_CASE("a side that runs short is ceded what the other has left, up to all but one") {
  slot_pool mine(0);
  slot_pool theirs(1);
  std::set<unsigned> taken;
  while (const auto slot = mine.find_free()) {
    CHECK(taken.insert(*slot).second);
    mine.take(*slot);
    REQUIRE(error_of_taking(theirs, *slot).empty());
    const slot_set ceded = theirs.cede();
    if (!ceded.empty()) mine.take_ceded(ceded);
    // Who has less has nothing to give.
    CHECK(mine.cede().empty());
  }
  CHECK(taken.size() == slot_count - 1);
  const auto last = theirs.find_free();
  REQUIRE(last);
  theirs.take(*last);
  CHECK(error_of_taking(mine, *last).empty());
}

TEST_CASE("when all are free again, both sides have some to hand out") {
  slot_pool mine(0);
  slot_pool theirs(1);
  std::vector<unsigned> taken;
  while (const auto slot = mine.find_free()) {
    mine.take(*slot);
    theirs.take_from_peer(*slot);
    taken.push_back(*slot);
    mine.take_ceded(theirs.cede());
  }
  for (const unsigned slot : taken) {
    mine.give_back(slot);
    theirs.give_back(slot);
  }
  mine.peer_gave_back(theirs.collect_returns());
  // Not given back here yet.
  CHECK(mine.cede().empty());
  theirs.peer_gave_back(mine.collect_returns());
  theirs.take_ceded(mine.cede());
  CHECK(mine.find_free());
  CHECK(theirs.find_free());
  unsigned left = 0;
  while (const auto slot = theirs.find_free()) {
    theirs.take(*slot);
    ++left;
  }
  CHECK(left == slot_count / 2);
}

TEST_CASE("a slot is used again when both sides have given it back, in either order") {
  for (const bool peer_first : {false, true}) {
    slot_pool mine(0);
    mine.take(0);
    if (peer_first) mine.peer_gave_back(only(0));
    mine.give_back(0);
    CHECK(mine.collect_returns().contains(0));
    if (!peer_first) {
      CHECK(mine.find_free() == 2);
      mine.peer_gave_back(only(0));
    }
    CHECK(mine.find_free() == 0);
    CHECK(mine.collect_returns().empty());
  }
}

TEST_CASE("one given back is not used again before the peer is told") {
  slot_pool mine(0);
  mine.take(0);
  mine.peer_gave_back(only(0));
  mine.give_back(0);
  CHECK(mine.find_free() == 2);
  CHECK(mine.collect_returns().contains(0));
  CHECK(mine.find_free() == 0);
}

TEST_CASE(
    "law 11: slots that do not exist, are not the peer's, or are in use are named") {
  slot_pool mine(0);
  CHECK(error_of_taking(mine, 256) == "slot 256 does not exist");
  CHECK(error_of_taking(mine, 65535) == "slot 65535 does not exist");
  CHECK(error_of_taking(mine, 4) == "slot 4 is not the peer's to hand out");
  CHECK(error_of_taking(mine, 5).empty());
  CHECK(error_of_taking(mine, 5) == "slot 5 is in use already");
  // Given back there, and here not yet.
  mine.peer_gave_back(only(5));
  CHECK(error_of_taking(mine, 5) == "slot 5 is in use already");
  CHECK_THROWS_WITH_AS(mine.peer_gave_back(only(5)),
                       "the peer gives back slot 5, which it has not", wire_error);
  CHECK_THROWS_AS(mine.peer_gave_back(only(7)), wire_error);
  CHECK_THROWS_WITH_AS(mine.take_ceded(only(4)), "slot 4 is not the peer's to cede",
                       wire_error);
  CHECK_THROWS_WITH_AS(mine.take_ceded(only(5)), "the peer cedes slot 5, which is in use",
                       wire_error);
  mine.take_ceded(only(7));
  CHECK(error_of_taking(mine, 7) == "slot 7 is not the peer's to hand out");
}

TEST_CASE("a slot is given back once, from any thread, wherever it was moved") {
  auto mine = std::make_shared<slot_pool>(1);
  mine->take(1);
  mine->take(3);
  {
    shm_slot first(nullptr, 1, mine);
    shm_slot moved(std::move(first));
    shm_slot other(nullptr, 3, mine);
    data_channel channel(std::move(moved));
    CHECK(mine->collect_returns().empty());
    std::thread elsewhere([gone = std::move(other)] {});
    elsewhere.join();
    const slot_set returns = mine->collect_returns();
    CHECK(returns.contains(3));
    CHECK_FALSE(returns.contains(1));
  }
  CHECK(mine->collect_returns().contains(1));
  CHECK(mine.use_count() == 1);
}

TEST_SUITE_END();
