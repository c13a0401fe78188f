// Signals: waited for by tasks, on each engine.
#include "manyworlds/io/signals.hpp"

#include <unistd.h>

#include <csignal>
#include <semaphore>
#include <stdexcept>
#include <thread>

#include "io/reactor_fixture.hpp"
#include "manyworlds/coro/sleep.hpp"
#include "manyworlds/coro/sync_wait.hpp"
#include "manyworlds/coro/when_any.hpp"
#include "manyworlds/coro/within.hpp"
#include "manyworlds/testing/simulation.hpp"
#include "support/entries.hpp"

using namespace manyworlds;
using namespace manyworlds::testing;

TEST_SUITE_BEGIN("signals");

namespace {

/// Takes the mask back when the case ends, so that the others find it as it was.
class same_mask {
 public:
  same_mask() { ::pthread_sigmask(SIG_SETMASK, nullptr, &before_); }
  ~same_mask() { ::pthread_sigmask(SIG_SETMASK, &before_, nullptr); }

 private:
  sigset_t before_{};
};

void send_to_process(int number) { REQUIRE(::kill(::getpid(), number) == 0); }

}  // namespace

TEST_CASE("until_signal ends with the signal that was sent and its sender") {
  FOR_EACH_ENGINE(kind) {
    const same_mask afterwards;
    reactor_fixture f(kind);
    running<received_signal> waits(f, until_signal({SIGUSR1, SIGUSR2}));
    // Once when it waits, and once before.
    for (int i = 0; i < 10; ++i) f.get().turn();
    CHECK(!waits.ended());
    send_to_process(SIGUSR2);
    f.run_until([&] { return waits.ended(); });
    const received_signal came = waits.result();
    CHECK(came.number == SIGUSR2);
    CHECK(came.sender == ::getpid());
    CHECK(came.sender_user == ::getuid());
    CHECK(came.text() == "SIGUSR2");
    send_to_process(SIGUSR1);
    CHECK(f.run(until_signal({SIGUSR1})).number == SIGUSR1);
  }
}

TEST_CASE("a signal that comes after the call and before the await is not lost") {
  FOR_EACH_ENGINE(kind) {
    const same_mask afterwards;
    task<received_signal> terminated = until_signal({SIGUSR1});
    send_to_process(SIGUSR1);
    reactor_fixture f(kind);
    CHECK(f.run(std::move(terminated)).number == SIGUSR1);
  }
}

TEST_CASE("a wait for a signal is cancelled, and leaves no descriptor") {
  FOR_EACH_ENGINE(kind) {
    const same_mask afterwards;
    reactor_fixture f(kind);
    auto gives_up = []() -> task<bool> {
      try {
        co_await within(until_signal({SIGUSR1}), 5ms);
      } catch (const timed_out&) {
        co_return true;
      }
      co_return false;
    };
    CHECK(f.run(gives_up()));
    const auto before = open_descriptors();
    for (int i = 0; i < 20; ++i) CHECK(f.run(gives_up()));
    CHECK(open_descriptors() == before);
    // What came while nothing waited is the next one's.
    send_to_process(SIGUSR1);
    CHECK(f.run(until_signal({SIGUSR1})).number == SIGUSR1);
  }
}

TEST_CASE("until_signal in when_any, written in the awaited expression itself") {
  FOR_EACH_ENGINE(kind) {
    const same_mask afterwards;
    reactor_fixture f(kind);
    // Begun once the signals are blocked: the calls come before the awaits.
    auto serve = []() -> task<void> {
      send_to_process(SIGUSR2);
      co_await sleep_for(1h);
    };
    auto main = [&]() -> task<int> {
      auto ended = co_await when_any(serve(), until_signal({SIGUSR1, SIGUSR2}));
      co_return std::get<1>(ended)->number;
    };
    CHECK(f.run(main()) == SIGUSR2);
  }
}

TEST_CASE("of two reactors that wait for one signal each takes one") {
  FOR_EACH_ENGINE(kind) {
    const same_mask afterwards;
    reactor_fixture one(kind);
    reactor_fixture two(kind);
    running<received_signal> first(one, until_signal({SIGUSR1}));
    running<received_signal> second(two, until_signal({SIGUSR1}));
    const auto both_turn = [&](auto condition) {
      const time_limit limit;
      while (!condition() && !limit.passed()) {
        one.get().turn();
        two.get().turn();
      }
      REQUIRE(!limit.passed());
    };
    send_to_process(SIGUSR1);
    both_turn([&] { return first.ended() || second.ended(); });
    CHECK(first.ended() != second.ended());
    send_to_process(SIGUSR1);
    both_turn([&] { return first.ended() && second.ended(); });
  }
}

TEST_CASE("until_signal refuses a process with a thread that the signal would end") {
  const same_mask afterwards;
  std::binary_semaphore started(0);
  std::binary_semaphore may_end(0);
  std::thread other([&] {
    ::pthread_setname_np(::pthread_self(), "unaware");
    started.release();
    may_end.acquire();
  });
  started.acquire();
  std::string said;
  try {
    (void)until_signal({SIGUSR1});
  } catch (const std::logic_error& e) {
    said = e.what();
  }
  may_end.release();
  other.join();
  CHECK_MESSAGE(said.find("thread \"unaware\"") != std::string::npos, said);
  CHECK_MESSAGE(said.find("does not block SIGUSR1") != std::string::npos, said);
  sigset_t now;
  REQUIRE(::pthread_sigmask(SIG_BLOCK, nullptr, &now) == 0);
  CHECK_MESSAGE(sigismember(&now, SIGUSR1) == 0, "what was refused blocks nothing");
  // The thread is gone, and one that is started from now on inherits the mask.
  (void)until_signal({SIGUSR1});
  std::thread later([] { (void)until_signal({SIGUSR1}); });
  later.join();
}

TEST_CASE("what is no signal, or cannot be waited for, is refused by its name") {
  CHECK_THROWS_WITH_AS(signal_set(SIGTERM, SIGKILL), "SIGKILL cannot be waited for",
                       std::invalid_argument);
  CHECK_THROWS_AS(signal_set(SIGSTOP), std::invalid_argument);
  CHECK_THROWS_AS(signal_set(SIGSEGV), std::invalid_argument);
  CHECK_THROWS_AS(signal_set(0), std::invalid_argument);
  CHECK_THROWS_AS(signal_set(65), std::invalid_argument);
  CHECK(signal_set(SIGTERM, SIGINT).has(SIGINT));
  CHECK(!signal_set(SIGTERM).has(SIGINT));
}

TEST_CASE("until_signal says that a simulation, or no reactor, has no signals") {
  const same_mask afterwards;
  CHECK_THROWS_AS(sync_wait(until_signal({SIGUSR1})), std::logic_error);
  simulation sim(1);
  environment& process = sim.add_process("simulated");
  reactor simulated(process.make_engine(engine_kind::automatic).engine);
  process.attach(simulated);
  {
    running<received_signal> waits(simulated, until_signal({SIGUSR1}));
    REQUIRE(sim.run_until([&] { return waits.ended(); }));
    CHECK_THROWS_AS(waits.result(), std::logic_error);
  }
  process.detach(simulated);
}

TEST_SUITE_END();
