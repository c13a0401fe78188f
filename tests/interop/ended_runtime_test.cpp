// Operations awaited from elsewhere: their runtime ends before it comes to them.
#include <doctest/doctest.h>

#include <memory>

#include "coro/foreign_coroutine.hpp"
#include "coro/test_executor.hpp"
#include "manyworlds/mw.hpp"

namespace manyworlds::testing {
namespace {

/// Never formed, so that its runtime ends without another turn.
struct described {
  described() : w(*rt, store, {.name = "described", .rank = 0, .size = 2}) {}

  task<cause> sending() {
    const std::uint64_t word = 1;
    const auto sent = co_await outcome(w.send(std::span(&word, 1), to(1)));
    co_return sent.error().cause;
  }

  memory_store store;
  std::unique_ptr<runtime> rt = std::make_unique<runtime>();
  world w;
};

foreign_coroutine send_from_anywhere(world& w) {
  const std::uint64_t word = 1;
  co_await w.send(std::span(&word, 1), to(1));
}

}  // namespace

TEST_SUITE_BEGIN("ended runtime");

TEST_CASE("an operation posted after the last turn still ends, with an error") {
  described d;
  foreign_coroutine foreign = send_from_anywhere(d.w);
  test_executor elsewhere;
  task<cause> native = d.sending();
  root waiter(elsewhere);
  waiter.begin(native.promise());
  elsewhere.drain();
  CHECK_FALSE(foreign.is_done());
  CHECK_FALSE(waiter.has_ended());

  d.rt.reset();
  elsewhere.drain();
  REQUIRE(foreign.is_done());
  CHECK_THROWS_AS(foreign.rethrow(), world_error);
  REQUIRE(waiter.has_ended());
  CHECK(native.promise().take_result() != cause::none);
}

TEST_CASE("an operation awaited after its runtime has ended fails at once") {
  described d;
  d.rt.reset();
  foreign_coroutine foreign = send_from_anywhere(d.w);
  REQUIRE(foreign.is_done());
  CHECK_THROWS_AS(foreign.rethrow(), world_error);
  test_executor elsewhere;
  CHECK(run(elsewhere, d.sending()) != cause::none);
}

TEST_SUITE_END();
}  // namespace manyworlds::testing
