#include "nccl/launcher.hpp"

#include <doctest/doctest.h>
#include <pthread.h>

#include <atomic>
#include <functional>
#include <memory>
#include <semaphore>
#include <string>
#include <thread>
#include <vector>

#include "nccl/device_fixture.hpp"
#include "nccl/helper_threads.hpp"
#include "support/eventually.hpp"

using namespace manyworlds;
using namespace manyworlds::testing;
using namespace std::chrono_literals;

TEST_SUITE_BEGIN("launcher");

namespace {

struct called final : work {
  explicit called(std::function<void()> f)
      : work([](work& w) noexcept { static_cast<called&>(w).call(); }),
        call(std::move(f)) {}
  std::function<void()> call;
};

struct launcher_fixture {
  launcher_fixture() { REQUIRE(launcher.start(helpers)); }
  ~launcher_fixture() {
    launcher.end();
    helpers.end(20s);
  }
  nccl::helper_threads helpers;
  nccl::launcher launcher{0};
};

}  // namespace

TEST_CASE("what one thread posts runs in its order, on a thread named after the device") {
  NEEDS_DEVICE();
  constexpr int per_thread = 500;
  std::vector<int> seen[2];
  std::atomic<int> ran{0};
  std::string name(16, '\0');
  std::vector<std::unique_ptr<called>> work[2];
  for (int t = 0; t < 2; ++t) {
    for (int i = 0; i < per_thread; ++i) {
      work[t].push_back(std::make_unique<called>([&, t, i] {
        seen[t].push_back(i);
        ::pthread_getname_np(::pthread_self(), name.data(), name.size());
        ++ran;
      }));
    }
  }
  launcher_fixture f;
  std::vector<std::thread> posting;
  for (int t = 0; t < 2; ++t) {
    posting.emplace_back([&, t] {
      for (auto& each : work[t]) f.launcher.post(*each);
    });
  }
  for (auto& each : posting) each.join();
  CHECK(eventually([&] { return ran == 2 * per_thread; }));
  for (const auto& order : seen) {
    for (int i = 0; i < per_thread; ++i) CHECK(order[static_cast<std::size_t>(i)] == i);
  }
  CHECK(std::string(name.c_str()) == "mw-launch-0");
}

TEST_CASE("a launcher that sleeps is woken by what is posted") {
  NEEDS_DEVICE();
  std::counting_semaphore<> ran{0};
  called work([&] { ran.release(); });
  launcher_fixture f;
  for (int times = 0; times < 50; ++times) {
    // Around the time when it goes to sleep.
    std::this_thread::sleep_for(std::chrono::microseconds(times * 4));
    f.launcher.post(work);
    REQUIRE(ran.try_acquire_for(20s));
  }
}

TEST_CASE("what is behind a stuck call is launched by another thread, each piece once") {
  NEEDS_DEVICE();
  std::binary_semaphore may_end{0};
  std::atomic<int> ran{0};
  called stuck([&] { may_end.acquire(); });
  called first([&] { ++ran; });
  called second([&] { ++ran; });
  // Its end joins the threads that are still in what is above.
  launcher_fixture f;
  f.launcher.post(stuck);
  f.launcher.post(first);
  REQUIRE(eventually([&] { return f.launcher.running() == 1; }));
  CHECK_FALSE(f.launcher.replace(7, f.helpers));
  CHECK(f.launcher.replace(1, f.helpers));
  CHECK(eventually([&] { return ran == 1; }));
  may_end.release();
  f.launcher.post(second);
  CHECK(eventually([&] { return ran == 2; }));
  CHECK_FALSE(f.launcher.replace(1, f.helpers));
  CHECK(eventually([&] { return f.launcher.running() == 0; }));
}
