#include "nccl/helper_threads.hpp"

#include <doctest/doctest.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <semaphore>
#include <thread>

#include "support/eventually.hpp"

using namespace manyworlds;
using namespace manyworlds::testing;
using namespace std::chrono_literals;

TEST_SUITE_BEGIN("helper threads");

TEST_CASE("no job waits for another") {
  nccl::helper_threads helpers;
  constexpr int jobs = 8;
  std::atomic<int> running{0};
  std::counting_semaphore<jobs> may_end{0};
  for (int i = 0; i < jobs; ++i) {
    REQUIRE(helpers.post([&] {
      ++running;
      may_end.acquire();
      --running;
    }));
  }
  CHECK(eventually([&] { return running == jobs; }));
  may_end.release(jobs);
  helpers.end(20s);
  CHECK(running == 0);
}

TEST_CASE("threads that have nothing to do end, and others come when they are needed") {
  nccl::helper_threads helpers;
  std::atomic<int> ran{0};
  for (int times = 1; times <= 2; ++times) {
    REQUIRE(helpers.post([&] { ++ran; }));
    CHECK(eventually([&] { return ran == times; }));
    CHECK(eventually([&] { return helpers.running() == 0; }));
  }
}

TEST_CASE("the end runs what was taken, and takes no more") {
  nccl::helper_threads helpers;
  std::atomic<int> ran{0};
  for (int i = 0; i < 20; ++i) REQUIRE(helpers.post([&] { ++ran; }));
  helpers.end(20s);
  CHECK(ran == 20);
  CHECK_FALSE(helpers.post([&] { ++ran; }));
}

TEST_CASE("a job that is stuck is left behind with what it holds, and ends when it can") {
  struct held {
    std::binary_semaphore may_end{0};
    std::atomic<bool> begun{false};
  };
  const auto stuck = std::make_shared<held>();
  {
    nccl::helper_threads helpers;
    REQUIRE(helpers.post([stuck] {
      stuck->begun = true;
      stuck->may_end.acquire();
    }));
    CHECK(eventually([&] { return stuck->begun.load(); }));
    helpers.end(20ms);
    CHECK(helpers.left_behind() == 1);
  }
  CHECK(stuck.use_count() == 2);
  stuck->may_end.release();
  CHECK(eventually([&] { return stuck.use_count() == 1; }));
}
