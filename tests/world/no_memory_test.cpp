// What a runtime is like after a step that found no memory.
#include <new>

#include "support/refused_memory.hpp"
#include "world_fixture.hpp"

namespace manyworlds::world_tests {

TEST_SUITE_BEGIN("world");

TEST_CASE("a task that finds no memory to run leaves the reactor to the next one") {
  node n;
  auto answer = []() -> task<int> { co_return 42; };
  int refused = 0;
  // Its state, then its place among the tasks that run.
  for (int before = 0; before < 2; ++before) {
    task<int> t = answer();
    try {
      const testing::refused_memory next(before);
      (void)n.rt.run(std::move(t));
    } catch (const std::bad_alloc&) {
      ++refused;
    }
  }
  CHECK(refused == 2);
  CHECK(n.rt.run(answer()) == 42);
}

TEST_SUITE_END();

}  // namespace manyworlds::world_tests
