// The state of a world alone, without members: which steps it takes, and what is told.
#include "world/world_life.hpp"

#include <doctest/doctest.h>

#include "manyworlds/coro/sync_wait.hpp"

namespace manyworlds::world_tests {

TEST_SUITE_BEGIN("world");

TEST_CASE("the first cause of a world's end stays, whatever is noticed next") {
  event_hub<world_event> hub;
  world_life life("pair", 0, hub);
  REQUIRE(life.begin_forming([] {}));
  CHECK(life.break_with(failure(cause::peer_died, ""), 1) == world_state::forming);
  CHECK_FALSE(life.break_with(failure(cause::protocol_error, ""), no_rank));
  CHECK_FALSE(life.step(world_state::forming, world_state::up));
  CHECK(life.first_failure().cause == cause::peer_died);
  CHECK(life.reporter() == 1);
}

TEST_CASE("a world takes a step only from the state that it is in") {
  event_hub<world_event> hub;
  world_life life("pair", 0, hub);
  CHECK_FALSE(life.step(world_state::forming, world_state::up));
  REQUIRE(life.begin_forming([] {}));
  CHECK_FALSE(life.begin_forming([] { FAIL("it forms already"); }));
  CHECK(life.step(world_state::forming, world_state::up));
  CHECK(life.step(world_state::up, world_state::closing));
  CHECK_FALSE(life.step(world_state::up, world_state::closed, failure()));
  CHECK(life.step(world_state::closing, world_state::closed, failure(cause::closed, "")));
  CHECK_FALSE(life.break_with(failure(cause::peer_died, ""), no_rank));
  CHECK(life.first_failure().cause == cause::closed);
}

TEST_CASE(
    "subscribers see the states of a world in their order, silence while it lives") {
  event_hub<world_event> hub;
  const world_events told(hub.subscribe(8));
  world_life life("pair", 1, hub);
  life.tell_of_silence(0, true);
  REQUIRE(life.begin_forming([] {}));
  life.note_formed(7);
  REQUIRE(life.step(world_state::forming, world_state::up));
  life.tell_of_silence(0, true);
  REQUIRE(life.break_with(failure(cause::silent_peer, ""), no_rank));
  life.tell_of_silence(0, false);
  hub.close();
  const world_event formed = sync_wait(told.next());
  CHECK(formed.kind == world_event_kind::formed);
  CHECK(formed.epoch == 7);
  CHECK(formed.rank == 1);
  CHECK(sync_wait(told.next()).kind == world_event_kind::suspect);
  const world_event broken = sync_wait(told.next());
  CHECK(broken.kind == world_event_kind::broken);
  CHECK(broken.cause == cause::silent_peer);
  CHECK_THROWS_AS((void)sync_wait(told.next()), world_error);
}

TEST_SUITE_END();

}  // namespace manyworlds::world_tests
