// Dropping the handle of a world that is being formed lets go of its store at once.
#include <memory>

#include "manyworlds/store/prefix_store.hpp"
#include "world_fixture.hpp"

namespace manyworlds::world_tests {

TEST_SUITE_BEGIN("world");

TEST_CASE(
    "a store may be destroyed as soon as the handle of a forming world is, at any "
    "moment") {
  node n;
  for (int round = 0; round < 60; ++round) {
    for (const rank_t rank : {0, 1}) {
      memory_store store;
      prefix_store job("job", store);
      world w(n.rt, job, {.name = "dropped", .rank = rank, .size = 2, .form = 10s});
      access::core(w).begin_forming();
      // From before its first request to well into its waiting.
      for (int i = 0; i < round * 4; ++i) std::this_thread::yield();
    }
  }
}

TEST_CASE("a tcp store may be destroyed while it is being asked for a forming world") {
  node n;
  for (int round = 0; round < 20; ++round) {
    // Nothing listens at port 1.
    tcp_store nowhere(n.rt, "127.0.0.1:1");
    world w(n.rt, nowhere, {.name = "dropped", .rank = 0, .size = 2, .form = 10s});
    access::core(w).begin_forming();
    for (int i = 0; i < round * 10; ++i) std::this_thread::yield();
  }
}

TEST_CASE("the record of a world that was dropped while it formed is withdrawn") {
  memory_store store;
  node n;
  auto record = [](memory_store& s) -> task<std::string> {
    co_return co_await s.get("mw/dropped/join/1", 5s);
  };
  world w(n.rt, store, {.name = "dropped", .rank = 1, .size = 2, .form = 10s});
  access::core(w).begin_forming();
  CHECK(!n.run(record(store)).empty());
  const auto core = access::core_ptr(w);
  w = world();
  auto drained = [](world_core& c) -> task<void> { co_await c.drained().wait(); };
  n.run(drained(*core));
  auto stands = [](memory_store& s) -> task<std::string> {
    const auto text = co_await s.try_get("mw/dropped/join/1");
    co_return text.value_or("");
  };
  CHECK(n.run(stands(store)).empty());
}

// As exit() does inside a task, where the store has static lifetime.
TEST_CASE(
    "a store may be destroyed before a world that forms: it is asked nothing more, and "
    "the world's record is withdrawn") {
  node n;
  auto record = [](memory_store& s) -> task<std::string> {
    co_return co_await s.get("job/mw/left/join/1", 5s);
  };
  auto stands = [](memory_store& s) -> task<bool> {
    const auto text = co_await s.try_get("job/mw/left/join/1");
    co_return text && !text->empty();
  };
  for (int round = 0; round < 5; ++round) {
    memory_store store;
    auto job = std::make_unique<prefix_store>("job", store);
    world w(n.rt, *job, {.name = "left", .rank = 1, .size = 2, .form = 200ms});
    auto formed = n.rt.start(forming(w));
    if (round > 0) CHECK(!n.run(record(store)).empty());
    job.reset();
    CHECK(n.finish(formed).cause != cause::none);
    CHECK(!n.run(stands(store)));
  }
}

TEST_SUITE_END();

}  // namespace manyworlds::world_tests
