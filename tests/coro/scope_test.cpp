#include "manyworlds/coro/scope.hpp"

#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "coro/test_executor.hpp"
#include "manyworlds/coro/channel.hpp"
#include "manyworlds/coro/event.hpp"
#include "manyworlds/coro/sleep.hpp"
#include "manyworlds/coro/when_all.hpp"
#include "manyworlds/coro/within.hpp"

namespace manyworlds::testing {
namespace {

task<void> sleeper(lifetimes& l, duration span, char name = '.') {
  tracked local(l, name);
  co_await sleep_for(span);
}
task<void> thrower(duration after) {
  co_await sleep_for(after);
  throw std::runtime_error("child");
}

}  // namespace

TEST_SUITE_BEGIN("scope");

TEST_CASE("all children end before the run does") {
  test_executor home;
  lifetimes l;
  run(home, [](test_executor& home, lifetimes& l) -> task<void> {
    co_await scope::run([&](scope& s) -> task<void> {
      s.spawn(sleeper(l, 3ms));
      s.spawn(sleeper(l, 9ms));
      s.spawn(sleeper, std::ref(l), 5ms, 'x');
      co_return;
    });
    CHECK(home.elapsed() == 9ms);
    CHECK(l.made == 3);
    CHECK(l.alive() == 0);
  }(home, l));
}

TEST_CASE("children run side by side and start in order of spawning") {
  std::string order;
  run([&]() -> task<void> {
    auto child = [&](char name) -> task<void> {
      order += name;
      co_await yield();
      order += name;
    };
    co_await scope::run([&](scope& s) -> task<void> {
      s.spawn(child, 'a');
      s.spawn(child, 'b');
      order += '0';
      co_return;
    });
  });
  CHECK(order == "0abab");
}

TEST_CASE(
    "a failing child cancels its siblings and its error is thrown when all have ended") {
  test_executor home;
  lifetimes l;
  run(home, [](test_executor& home, lifetimes& l) -> task<void> {
    std::string what;
    try {
      co_await scope::run([&](scope& s) -> task<void> {
        s.spawn(sleeper(l, 1h));
        s.spawn(thrower(2ms));
        s.spawn(thrower(3ms));
        tracked body(l);
        co_await sleep_for(1h);
      });
    } catch (const std::runtime_error& e) {
      what = e.what();
    }
    CHECK(what == "child");
    CHECK(home.elapsed() == 2ms);
    CHECK(l.made == 2);
    CHECK(l.alive() == 0);
  }(home, l));
}

TEST_CASE("a failing body cancels its children") {
  lifetimes l;
  run([&]() -> task<void> {
    bool caught = false;
    try {
      co_await scope::run([&](scope& s) -> task<void> {
        s.spawn(sleeper(l, 1h));
        co_await yield();
        throw 7;
      });
    } catch (int) {
      caught = true;
    }
    CHECK(caught);
  });
  CHECK(l.made == 1);
  CHECK(l.alive() == 0);
}

TEST_CASE("a child may be anything that a task can await, and what it gives is dropped") {
  test_executor home;
  lifetimes l;
  run(home, [](test_executor& home, lifetimes& l) -> task<void> {
    event happened;
    channel<int> numbers(1);
    co_await scope::run([&](scope& s) -> task<void> {
      s.spawn(happened.wait());
      s.spawn(numbers.push(7));
      s.spawn(number_after(2ms, 8, l));
      s.spawn(when_all(sleeper(l, 3ms), sleeper(l, 4ms)));
      s.spawn(within(sleep_for(1h), 1h));
      s.spawn(scope::run([&](scope& inner) -> task<void> {
        inner.spawn(sleeper(l, 5ms));
        co_return;
      }));
      auto named = sleep_for(6ms);
      s.spawn(std::move(named));
      co_await sleep_for(7ms);
      CHECK(s.size() == 3);  // the body, the event and the deadline
      happened.set();
      co_await yield();
      CHECK(numbers.try_pop() == 7);
      s.cancel();
    });
    CHECK(home.elapsed() == 7ms);
    CHECK(l.made == 4);
    CHECK(l.alive() == 0);
  }(home, l));
}

TEST_CASE("what a spawned awaitable throws is the run's error, and cancels the others") {
  test_executor home;
  std::string what;
  run(home, [](std::string& what) -> task<void> {
    try {
      co_await scope::run([&](scope& s) -> task<void> {
        s.spawn(sleep_for(1h));
        s.spawn(within(sleep_for(1h), 2ms));
        co_return;
      });
    } catch (const timed_out&) {
      what = "timed out";
    }
  }(what));
  CHECK(what == "timed out");
  CHECK(home.elapsed() == 2ms);
}

TEST_CASE("an awaitable that is spawned into a cancelled scope is never begun") {
  lifetimes l;
  int begun = 0;
  struct counted {
    tracked local;
    int* begun;
    bool await_ready() const noexcept { return false; }
    void await_start(continuation& k) const noexcept {
      ++*begun;
      k.resume();
    }
    bool await_cancel() const noexcept { return false; }
    bool await_must_resume() const noexcept { return true; }
    void await_resume() const noexcept {}
  };
  run([&]() -> task<void> {
    co_await scope::run([&](scope& s) -> task<void> {
      s.spawn(counted{tracked(l), &begun});
      co_await yield();
      s.cancel();
      s.spawn(counted{tracked(l), &begun});
    });
  });
  CHECK(begun == 1);
  CHECK(l.made > 0);
  CHECK(l.alive() == 0);
}

TEST_CASE("cancel ends all children and the run returns normally") {
  test_executor home;
  lifetimes l;
  bool went_on = false;
  run(home, [](test_executor& home, lifetimes& l, bool& went_on) -> task<void> {
    co_await scope::run([&](scope& s) -> task<void> {
      s.spawn(sleeper(l, 1h));
      s.spawn([&s]() -> task<void> {
        co_await sleep_for(4ms);
        s.cancel();
        s.cancel();
        co_await yield();
        FAIL("a cancelled child goes on after its next await");
      });
      co_await sleep_for(2h);
      FAIL("the body goes on");
    });
    CHECK(home.elapsed() == 4ms);
    went_on = true;
  }(home, l, went_on));
  CHECK(went_on);
  CHECK(l.alive() == 0);
}

TEST_CASE("a child spawned into a cancelled scope is never started") {
  lifetimes l;
  run([&]() -> task<void> {
    co_await scope::run([&](scope& s) -> task<void> {
      s.spawn(sleeper(l, 1ms));  // queued, not started yet
      s.cancel();
      s.spawn(sleeper(l, 1ms));
      auto token = std::make_unique<tracked>(l);
      s.spawn([t = std::move(token)]() -> task<void> {
        FAIL("started");
        co_return;
      });
      co_return;
    });
  });
  CHECK(l.made == 1);
  CHECK(l.alive() == 0);
}

TEST_CASE("children that spawn and cancel while they are unwound keep the scope sound") {
  struct meddler {
    explicit meddler(scope& s) : s(s) {}
    meddler(const meddler&) = delete;
    ~meddler() {
      s.spawn([]() -> task<void> {
        FAIL("started");
        co_return;
      });
      s.cancel();
    }
    scope& s;
  };
  run([&]() -> task<void> {
    co_await scope::run([&](scope& s) -> task<void> {
      for (int i = 0; i < 10; ++i) {
        s.spawn([&s]() -> task<void> {
          meddler m(s);
          co_await sleep_for(1h);
        });
      }
      co_await sleep_for(1ms);
      s.cancel();
    });
  });
}

TEST_CASE("a local that spawns at its end gives a live scope one more child") {
  bool ran = false;
  struct heir {
    explicit heir(scope& s, bool& ran) : s(s), ran(ran) {}
    heir(const heir&) = delete;
    ~heir() {
      s.spawn([&ran = ran]() -> task<void> {
        ran = true;
        co_return;
      });
    }
    scope& s;
    bool& ran;
  };
  run([&]() -> task<void> {
    co_await scope::run([&](scope& s) -> task<void> {
      s.spawn([](std::unique_ptr<heir>) -> task<void> { co_return; },
              std::make_unique<heir>(s, ran));
      co_return;
    });
  });
  CHECK(ran);
}

TEST_CASE("frames unwind leaf first when a run is cancelled") {
  lifetimes l;
  run([&]() -> task<void> {
    auto middle = [&]() -> task<void> {
      tracked local(l, 'm');
      co_await sleeper(l, 1h, 'l');
    };
    auto outer = [&]() -> task<void> {
      tracked local(l, 'o');
      co_await scope::run([&](scope&) -> task<void> {
        tracked body(l, 'b');
        co_await middle();
      });
    };
    co_await scope::run([&](scope& s) -> task<void> {
      s.spawn(outer());
      co_await sleep_for(1ms);
      s.cancel();
    });
  });
  CHECK(l.order == "lmbo");
  CHECK(l.alive() == 0);
}

TEST_CASE("a child that ended by itself is freed while the run goes on") {
  lifetimes l;
  run([&]() -> task<void> {
    co_await scope::run([&](scope& s) -> task<void> {
      auto held = std::make_unique<tracked>(l);
      s.spawn([](std::unique_ptr<tracked>) -> task<void> { co_return; }, std::move(held));
      co_await sleep_for(1ms);
      CHECK(l.alive() == 0);
    });
  });
}

TEST_CASE("an error of a child that is being cancelled wins over the cancellation") {
  run([&]() -> task<void> {
    auto stubborn = []() -> task<void> {
      co_await std::suspend_never{};
      co_return;
    };
    bool threw = false;
    auto inner = [&]() -> task<void> {
      try {
        co_await scope::run([&](scope& s) -> task<void> {
          s.spawn([&]() -> task<void> {
            co_await yield();  // ready when the cancel comes: goes on
            co_await stubborn();
          });
          co_await yield();
          throw 5;
        });
      } catch (int) {
        threw = true;
      }
    };
    co_await scope::run([&](scope& s) -> task<void> {
      s.spawn(inner());
      co_await yield();
      co_await yield();
      s.cancel();
    });
    CHECK(threw);
  });
}

TEST_CASE("a scope within a deadline ends its children when the time is over") {
  test_executor home;
  lifetimes l;
  run(home, [](test_executor& home, lifetimes& l) -> task<void> {
    bool late = false;
    try {
      co_await within(scope::run([&](scope& s) -> task<void> {
                        s.spawn(sleeper(l, 1h));
                        s.spawn(sleeper(l, 1ms));
                        co_return;
                      }),
                      2ms);
    } catch (const timed_out&) {
      late = true;
      CHECK(l.alive() == 0);
    }
    CHECK(late);
    CHECK(home.elapsed() == 2ms);
  }(home, l));
  CHECK(l.made == 2);
}

TEST_SUITE_END();
}  // namespace manyworlds::testing
