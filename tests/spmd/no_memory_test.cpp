// Sessions: what is left of an error for which there is no memory.
#include "session_fixture.hpp"
#include "support/refused_memory.hpp"

namespace manyworlds::spmd_tests {

TEST_SUITE_BEGIN("spmd");

TEST_CASE("a call is given up also where there is no memory to say what it waits for") {
  in_session(worker_kind::threads, 2, [](session& s) -> task<void> {
    bool was_refused = false;
    auto sleeping = [&]() -> task<void> { co_await s.call(sleep_ms, 60'000); };
    auto giving_up = [&](scope& both) -> task<void> {
      both.spawn(sleeping());
      co_await sleep_for(10ms);
      const testing::refused_memory next;
      both.cancel();
      was_refused = testing::refused_memory::was_asked();
    };
    co_await scope::run(giving_up);
    CHECK(was_refused);
    co_await s.sync();
    // It was ended on the workers, which do the next.
    CHECK((co_await s.call(add_one, 1).from(0)) == 2);
  });
}

TEST_SUITE_END();

}  // namespace manyworlds::spmd_tests
