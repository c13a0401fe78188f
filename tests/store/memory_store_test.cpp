#include "manyworlds/store/memory_store.hpp"

#include <doctest/doctest.h>

#include <deque>
#include <functional>
#include <stdexcept>
#include <string>

#include "coro/foreign_coroutine.hpp"
#include "manyworlds/interop/resume_on.hpp"

using namespace manyworlds;
using manyworlds::testing::foreign_coroutine;

TEST_SUITE_BEGIN("memory_store");

TEST_CASE("a wait with a limit says where no time is kept, one without is served there") {
  std::deque<std::function<void()>> jobs;
  foreign_executor home([&](auto job) { jobs.emplace_back(job); });
  const auto run = [&] {
    while (!jobs.empty()) {
      const auto job = std::move(jobs.front());
      jobs.pop_front();
      job();
    }
  };
  memory_store store;
  bool refused = false;
  std::string got;
  const auto body = [&]() -> foreign_coroutine {
    try {
      co_await resume_on(home, store.get("key", std::chrono::seconds(1)));
    } catch (const std::logic_error&) {
      refused = true;
    }
    got = co_await resume_on(home, store.get("key", duration::max()));
  };
  foreign_coroutine f = body();
  run();
  CHECK(refused);
  const auto setting = [&]() -> foreign_coroutine {
    co_await resume_on(home, store.set("key", "value"));
  };
  foreign_coroutine g = setting();
  run();
  REQUIRE(f.is_done());
  f.rethrow();
  CHECK(got == "value");
}

TEST_SUITE_END();
