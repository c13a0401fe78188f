// Many starts leave nothing, and cost the same in a large process.
#include <sys/mman.h>

#include <algorithm>
#include <cstdlib>

#include "process_fixture.hpp"
#include "support/burdens.hpp"
#include "support/footprint.hpp"
#include "support/sanitizers.hpp"

namespace manyworlds::launch_tests {

TEST_SUITE_BEGIN("launch");

namespace {

/// tests/run.sh --full asks for it.
bool is_long() { return std::getenv("MANYWORLDS_TEST_LONG") != nullptr; }

void start_many(node& n, int count) {
  auto life = [&]() -> task<void> {
    for (int i = 0; i < count; ++i) {
      supervised_process one(n.rt, orders({}));
      co_await one.started();
      co_await one.ended().within(20s);
      co_await one.stop();
    }
  };
  n.run(life(), 10min);
}

duration fastest_start(node& n) {
  std::vector<duration> times;
  auto life = [&]() -> task<void> {
    for (int i = 0; i < 21; ++i) {
      supervised_process one(n.rt, orders({}));
      const auto before = world_tests::clock::now();
      co_await one.started();
      times.push_back(world_tests::clock::now() - before);
      co_await one.ended();
    }
  };
  n.run(life());
  return *std::min_element(times.begin(), times.end());
}

}  // namespace

TEST_CASE("V8 thousands of starts leave no zombie, no descriptor and no memory") {
  node n;
  const int count = is_long() ? 10'000 : 200;
  start_many(n, 50);
  const testing::footprint before;
  start_many(n, count);
  const testing::footprint after;
  CHECK(unreaped() == 0);
  CHECK(after.descriptors <= before.descriptors);
  CHECK(after.threads <= before.threads);
  if (!testing::has_address_sanitizer && !testing::has_thread_sanitizer)
    CHECK(after.resident_bytes < before.resident_bytes + (8u << 20));
}

TEST_CASE("V10 a large process starts programs as fast as a small one") {
  node n;
  const std::size_t bytes = is_long() ? std::size_t{4} << 30 : std::size_t{512} << 20;
  if (testing::available_memory() < 2 * bytes) {
    MESSAGE("skipped: there is not memory enough");
    return;
  }
  fastest_start(n);
  const duration small = fastest_start(n);
  REQUIRE(testing::touch_memory(bytes));
  const duration large = fastest_start(n);
  // A fork would take 50 ms at 512 MiB.
  CHECK(large < 5 * small + 10ms);
  MESSAGE("a start took " << small.count() / 1000 << " us, and then "
                          << large.count() / 1000 << " us");
}

TEST_SUITE_END();

}  // namespace manyworlds::launch_tests
