#include "manyworlds/coro/offload.hpp"

#include <memory>
#include <semaphore>
#include <stdexcept>
#include <string>
#include <thread>

#include "coro/test_executor.hpp"
#include "manyworlds/coro/scope.hpp"
#include "manyworlds/coro/sleep.hpp"
#include "manyworlds/coro/stop.hpp"
#include "manyworlds/coro/sync_wait.hpp"

namespace manyworlds::testing {
namespace {

// A foreign pool that takes callables, at once on the calling thread.
struct inline_pool {
  int calls = 0;
  template <class F>
  void execute(F f) {
    ++calls;
    f();
  }
};

}  // namespace

TEST_SUITE_BEGIN("offload");

TEST_CASE("a function runs on the other thread and its task goes on at home") {
  worker_thread worker("engine");
  sync_wait([&]() -> task<void> {
    const auto home = std::this_thread::get_id();
    const auto there =
        co_await offload(worker, [] { return std::this_thread::get_id(); });
    CHECK(there == worker.id());
    CHECK(std::this_thread::get_id() == home);
    std::string text = "x";
    co_await offload(worker, [&] { text += "y"; });
    CHECK(text == "xy");
    auto owner =
        co_await offload(worker, [&] { return std::make_unique<std::string>(text); });
    CHECK(*owner == "xy");
    std::string& same = co_await offload(worker, [&]() -> std::string& { return text; });
    CHECK(&same == &text);
    auto named = [copy = text] { return copy + "z"; };
    const std::string longer = co_await offload(worker, named);
    CHECK(longer == "xyz");
  }());
}

TEST_CASE("what the function throws is thrown at the await") {
  worker_thread worker;
  sync_wait([&]() -> task<void> {
    std::string what;
    try {
      co_await offload(worker, [] { throw std::runtime_error("over there"); });
    } catch (const std::runtime_error& e) {
      what = e.what();
    }
    CHECK(what == "over there");
  }());
}

TEST_CASE("a foreign executor of callables will do") {
  inline_pool pool;
  const int value = sync_wait(offload(pool, [] { return 5; }));
  CHECK(value == 5);
  CHECK(pool.calls == 1);
}

TEST_CASE("many tasks offload to one thread and each gets its own value") {
  worker_thread worker;
  int sum = 0;
  sync_wait([&]() -> task<void> {
    auto one = [&](int i) -> task<void> {
      const int square = co_await offload(worker, [&] { return i * i; });
      CHECK(square == i * i);
      sum += square;
    };
    co_await scope::run([&](scope& s) -> task<void> {
      for (int i = 0; i < 200; ++i) s.spawn(one, i);
      co_return;
    });
  }());
  CHECK(sum == 199 * 200 * 399 / 6);
}

TEST_CASE("once begun it is waited for; while queued it need not begin") {
  worker_thread worker;
  std::binary_semaphore has_begun{0}, may_end{0};
  lifetimes l;
  bool finished = false, second_ran = false;
  sync_wait([&]() -> task<void> {
    co_await scope::run([&](scope& s) -> task<void> {
      s.spawn([&]() -> task<void> {
        tracked local(l);
        co_await offload(worker, [&] {
          has_begun.release();
          may_end.acquire();
          finished = l.alive() > 0;
        });
        co_await yield();
        FAIL("went on");
      });
      s.spawn([&]() -> task<void> {
        tracked local(l);
        co_await offload(worker, [&] { second_ran = true; });
        FAIL("went on");
      });
      co_await yield();
      has_begun.acquire();
      s.cancel();
      may_end.release();
    });
  }());
  CHECK(finished);
  CHECK_FALSE(second_ran);
  CHECK(l.made == 2);
  CHECK(l.alive() == 0);
}

TEST_CASE("a worker finishes what it was handed before it ends") {
  int ran = 0;
  struct counting final : work {
    explicit counting(int& n)
        : work([](work& w) noexcept { ++static_cast<counting&>(w).n; }), n(n) {}
    int& n;
  };
  counting a(ran), b(ran), c(ran);
  {
    worker_thread worker;
    worker.post(a);
    worker.post(b);
    worker.post(c);
  }
  CHECK(ran == 3);
}

TEST_SUITE_END();
}  // namespace manyworlds::testing
