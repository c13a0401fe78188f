// Dispatcher: what is left of a call for which there is no memory.
#include <doctest/doctest.h>

#include <memory>
#include <new>

#include "manyworlds/detail/local_executor.hpp"
#include "manyworlds/manyworlds.hpp"
#include "serve/call_state.hpp"
#include "serve/dispatch_core.hpp"
#include "support/refused_memory.hpp"

namespace manyworlds::dispatch_tests {

TEST_SUITE_BEGIN("serve");

TEST_CASE("a call that finds no memory in the queue does not stand there") {
  const auto core = std::make_shared<dispatch_core>(dispatch_options{});
  bool was_refused = false;
  auto calls = [&]() -> task<void> {
    executor& home = core->enter();
    const least_depth pick;
    call_state call(core, pick_reference(pick), core->next_number());
    call.begin(home, duration::max(), {});
    try {
      const testing::refused_memory next;
      core->admit(call);
    } catch (const std::bad_alloc&) {
      was_refused = true;
    }
    REQUIRE_FALSE(call.is_queued());
    core->admit(call);
    CHECK(core->queued() == 1);
    co_return;
  };
  local_executor here;
  here.run(calls());
  CHECK(was_refused);
  CHECK(core->queued() == 0);
}

TEST_SUITE_END();

}  // namespace manyworlds::dispatch_tests
