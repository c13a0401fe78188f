#include "manyworlds/coro/channel.hpp"

#include <algorithm>
#include <atomic>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "coro/test_executor.hpp"
#include "manyworlds/coro/scope.hpp"
#include "manyworlds/coro/sleep.hpp"
#include "manyworlds/coro/sync_wait.hpp"
#include "manyworlds/coro/within.hpp"

namespace manyworlds::testing {
namespace {

// What the pipeline of programs.md passes on: an aggregate with a destructor.
struct batch {
  std::string name;
  std::vector<float> hidden;
};

}  // namespace

TEST_SUITE_BEGIN("channel");

TEST_CASE("values come out in the order they went in, and closing ends the consumer") {
  std::vector<int> seen;
  run([&]() -> task<void> {
    channel<int> c(2);
    co_await scope::run([&](scope& s) -> task<void> {
      s.spawn([&]() -> task<void> {
        for (int i = 0; i < 10; ++i) {
          const bool is_in = co_await c.push(i);
          CHECK(is_in);
          CHECK(c.size() <= 2);
        }
        c.close();
      });
      while (auto v = co_await c.pop()) seen.push_back(*v);
    });
  });
  CHECK(seen == std::vector{0, 1, 2, 3, 4, 5, 6, 7, 8, 9});
}

TEST_CASE("the pipeline of programs.md reads as it is written there") {
  std::string seen;
  run([&]() -> task<void> {
    channel<batch> ready(4), done(4);
    std::optional<batch> unsent;
    auto up = [&]() -> task<void> {
      for (char name : std::string("abc")) {
        batch b{std::string(40, name), {1.0f}};
        co_await ready.push(std::move(b));
      }
      ready.close();
    };
    auto compute = [&]() -> task<void> {
      while (auto b = co_await ready.pop()) {
        co_await done.push(std::move(*b));
      }
      done.close();
    };
    auto down = [&]() -> task<void> {
      for (;;) {
        if (!unsent) unsent = co_await done.pop();
        if (!unsent) co_return;
        seen += unsent->name[0];
        unsent.reset();
      }
    };
    co_await scope::run([&](scope& s) -> task<void> {
      s.spawn(up);
      s.spawn(compute);
      s.spawn(down);
      co_return;
    });
  });
  CHECK(seen == "abc");
}

TEST_CASE("waiting pushes and pops are served in the order they came") {
  std::string order;
  run([&]() -> task<void> {
    channel<char> c(1);
    co_await scope::run([&](scope& s) -> task<void> {
      for (char name : {'a', 'b', 'c', 'd'}) {
        s.spawn([&c, name]() -> task<void> { co_await c.push(name); });
      }
      co_await sleep_for(1ms);
      CHECK_FALSE(c.try_push('x'));
      for (int i = 0; i < 4; ++i) {
        const auto v = co_await c.pop();
        order += *v;
      }
      for (char name : {'1', '2', '3'}) {
        s.spawn([&c, &order, name]() -> task<void> {
          const auto v = co_await c.pop();
          order += name;
          order += *v;
        });
      }
      co_await sleep_for(1ms);
      for (char v : {'x', 'y', 'z'}) CHECK(c.try_push(v));
    });
  });
  CHECK(order == "abcd1x2y3z");
}

TEST_CASE("with capacity 0 a push ends when its value is taken") {
  run([]() -> task<void> {
    channel<int> c(0);
    bool was_pushed = false;
    co_await scope::run([&](scope& s) -> task<void> {
      s.spawn([&]() -> task<void> {
        const bool is_in = co_await c.push(1);
        was_pushed = is_in;
      });
      co_await sleep_for(1ms);
      CHECK_FALSE(was_pushed);
      CHECK_FALSE(c.try_push(2));
      const auto v = co_await c.pop();
      CHECK(v == 1);
    });
    CHECK(was_pushed);
    CHECK_FALSE(c.try_pop());
  });
}

TEST_CASE("closing: waiting pushes give false, waiting pops nothing, what is in stays") {
  lifetimes l;
  run([&]() -> task<void> {
    channel<tracked> full(1), empty(1);
    CHECK(full.try_push(tracked(l)));
    int refused = 0, nothing = 0;
    co_await scope::run([&](scope& s) -> task<void> {
      for (int i = 0; i < 2; ++i) {
        s.spawn([&]() -> task<void> {
          const bool is_in = co_await full.push(tracked(l));
          if (!is_in) ++refused;
        });
        s.spawn([&]() -> task<void> {
          const auto v = co_await empty.pop();
          if (!v) ++nothing;
        });
      }
      co_await sleep_for(1ms);
      full.close();
      full.close();
      empty.close();
    });
    CHECK(refused == 2);
    CHECK(nothing == 2);
    CHECK(l.alive() == 1);
    {
      const auto left = co_await full.pop();
      CHECK(left);
    }
    const auto end = co_await full.pop();
    CHECK_FALSE(end);
    const bool is_in = co_await full.push(tracked(l));
    CHECK_FALSE(is_in);
  });
  CHECK(l.alive() == 0);
}

TEST_CASE("a refused try_push leaves its value untouched") {
  channel<std::unique_ptr<int>> c(1);
  CHECK(c.try_push(std::make_unique<int>(1)));
  auto second = std::make_unique<int>(2);
  CHECK_FALSE(c.try_push(std::move(second)));
  REQUIRE(second);
  CHECK(*second == 2);
}

TEST_CASE("a push that is cancelled keeps its value out") {
  test_executor home;
  lifetimes l;
  channel<tracked> c(1);
  CHECK(c.try_push(tracked(l, 'a')));
  auto body = [&]() -> task<void> { co_await c.push(tracked(l, 'b')); };
  CHECK(cancel_after(home, body(), 1ms));
  CHECK(c.size() == 1);
  CHECK(c.try_pop());
  CHECK_FALSE(c.try_pop());
  CHECK(l.order == "ba");
  CHECK(l.alive() == 0);
}

TEST_CASE("a pop that is cancelled leaves its place and takes nothing") {
  test_executor home;
  channel<int> c(1);
  auto body = [&]() -> task<void> { co_await c.pop(); };
  CHECK(cancel_after(home, body(), 1ms));
  CHECK(c.try_push(1));
  CHECK(c.try_pop() == 1);
}

TEST_CASE("a pop that was given a value when it is cancelled delivers it") {
  test_executor home;
  channel<int> c(1);
  std::optional<int> got;
  auto body = [&]() -> task<void> {
    got = co_await c.pop();
    co_await yield();
    FAIL("went on");
  };
  task<void> t = body();
  root waiter(home);
  waiter.begin(t.promise());
  home.drain();
  call both([&] {
    CHECK(c.try_push(7));
    CHECK_FALSE(waiter.cancel());
  });
  home.post(both);
  home.drain();
  CHECK(waiter.has_ended());
  CHECK(got == 7);
  CHECK(t.promise().outcome() == task_outcome::cancelled);
}

TEST_CASE("who waits for a channel that is destroyed ends with invalid_argument") {
  test_executor home;
  auto c = std::make_unique<channel<int>>(0);
  std::string said;
  auto pops = [&](channel<int>& from) -> task<void> {
    try {
      co_await from.pop();
    } catch (const std::invalid_argument& e) {
      said = e.what();
    }
  };
  task<void> pop = pops(*c);
  root popping(home);
  popping.begin(pop.promise());
  home.drain();
  c.reset();
  home.drain();
  CHECK(popping.has_ended());
  CHECK(said.find("destroyed while a task waited in pop()") != std::string::npos);

  c = std::make_unique<channel<int>>(0);
  said.clear();
  auto pushes = [&](channel<int>& to) -> task<void> {
    try {
      co_await to.push(1);
    } catch (const std::invalid_argument& e) {
      said = e.what();
    }
  };
  task<void> push = pushes(*c);
  root pushing(home);
  pushing.begin(push.promise());
  home.drain();
  // Cancelled when it is on its way already, it does not touch the channel again.
  call both([&] {
    c.reset();
    CHECK_FALSE(pushing.cancel());
  });
  home.post(both);
  home.drain();
  CHECK(pushing.has_ended());
  CHECK(said.find("push()") != std::string::npos);
}

TEST_CASE("four threads pass every value exactly once, with pops that give up") {
  constexpr int producers = 2, consumers = 2, each = 4000;
  channel<int> c(3);
  std::vector<std::vector<int>> seen(consumers);
  std::atomic<int> producing{producers};
  std::vector<std::thread> threads;
  for (int p = 0; p < producers; ++p) {
    threads.emplace_back([&, p] {
      sync_wait([&]() -> task<void> {
        for (int i = 0; i < each; ++i) co_await c.push(p * each + i);
        if (--producing == 0) c.close();
      }());
    });
  }
  for (auto& mine : seen) {
    threads.emplace_back([&] {
      sync_wait([&]() -> task<void> {
        for (;;) {
          try {
            const auto v = co_await within(c.pop(), 20us);
            if (!v) co_return;
            mine.push_back(*v);
          } catch (const timed_out&) {}
        }
      }());
    });
  }
  for (auto& t : threads) t.join();
  std::vector<int> count(producers * each);
  for (const auto& mine : seen) {
    std::vector<int> last(producers, -1);
    for (int v : mine) {
      ++count[static_cast<std::size_t>(v)];
      int& before = last[static_cast<std::size_t>(v / each)];
      CHECK_MESSAGE(before < v, "one producer's values change places");
      before = v;
    }
  }
  CHECK(std::count(count.begin(), count.end(), 1) == producers * each);
}

TEST_CASE("plain threads push, tasks pop") {
  channel<int> c(16);
  std::atomic<int> refused{0};
  std::vector<std::thread> threads;
  for (int p = 0; p < 3; ++p) {
    threads.emplace_back([&] {
      for (int i = 1; i <= 1000;) {
        if (c.try_push(i)) {
          ++i;
        } else {
          ++refused;
          std::this_thread::yield();
        }
      }
    });
  }
  const long sum = sync_wait([&]() -> task<long> {
    long total = 0;
    for (int i = 0; i < 3000; ++i) {
      const auto v = co_await c.pop();
      total += *v;
    }
    co_return total;
  }());
  for (auto& t : threads) t.join();
  CHECK(sum == 3 * 500500);
}

TEST_SUITE_END();
}  // namespace manyworlds::testing
