#include "io/biased_mutex.hpp"

#include <doctest/doctest.h>

#include <atomic>
#include <chrono>
#include <mutex>
#include <thread>
#include <vector>

using manyworlds::biased_mutex;

TEST_SUITE("io biased mutex") {
  TEST_CASE("its owner and the others exclude each other") {
    biased_mutex mutex;
    // Two words that are equal whenever no thread holds the mutex.
    std::uint64_t first = 0;
    std::uint64_t second = 0;
    std::atomic<bool> over{false};
    std::uint64_t by_owner = 0;
    std::atomic<std::uint64_t> by_others{0};
    std::atomic<int> torn{0};

    std::thread owner([&] {
      while (!over.load(std::memory_order_relaxed)) {
        const biased_mutex::owner_lock lock(mutex);
        if (first != second) ++torn;
        ++first;
        ++second;
        ++by_owner;
      }
    });
    std::vector<std::thread> others;
    for (int i = 0; i < 3; ++i) {
      others.emplace_back([&] {
        for (int n = 0; n < 2'000; ++n) {
          const std::lock_guard lock(mutex);
          if (first != second) ++torn;
          ++first;
          ++second;
          ++by_others;
        }
      });
    }
    for (std::thread& t : others) t.join();
    over = true;
    owner.join();
    CHECK(torn == 0);
    CHECK(by_others == 6'000);
    CHECK(first == by_owner + by_others);
    CHECK(second == first);
  }

  TEST_CASE("its owner goes on while others come all the time") {
    biased_mutex mutex;
    std::atomic<bool> over{false};
    std::atomic<int> by_other{0};
    std::thread other([&] {
      while (!over.load()) {
        const std::lock_guard lock(mutex);
        ++by_other;
      }
    });
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    int by_owner = 0;
    while ((by_owner < 10'000 || by_other < 1'000) &&
           std::chrono::steady_clock::now() < end) {
      const biased_mutex::owner_lock lock(mutex);
      ++by_owner;
    }
    over = true;
    other.join();
    CHECK(by_owner >= 10'000);
    CHECK(by_other >= 1'000);
  }
}
