// The reactor inside a foreign epoll loop: `descriptor`, `prepare_wait` and `turn`.
#include <doctest/doctest.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <csignal>
#include <thread>

#include "io/reactor_fixture.hpp"
#include "manyworlds/io/file_reader.hpp"
#include "manyworlds/io/signals.hpp"

using namespace manyworlds;
using namespace manyworlds::testing;

TEST_SUITE_BEGIN("embedding");

namespace {

/// A loop that knows the reactor by its descriptor only.
class foreign_loop {
 public:
  explicit foreign_loop(reactor& r)
      : reactor_(r), epoll_(::epoll_create1(EPOLL_CLOEXEC)) {
    epoll_event interest{};
    interest.events = EPOLLIN;
    REQUIRE(::epoll_ctl(epoll_, EPOLL_CTL_ADD, r.io().descriptor(), &interest) == 0);
  }
  ~foreign_loop() { ::close(epoll_); }

  /// True if it ended by the condition, false if a wake-up was lost until the limit.
  template <class Condition>
  bool run_until(Condition condition) {
    while (!limit_.passed()) {
      reactor_.turn();
      if (condition()) return true;
      const auto may_sleep = reactor_.prepare_wait();
      if (may_sleep == duration::zero()) continue;
      auto left = limit_.end() - std::chrono::steady_clock::now();
      if (may_sleep) left = std::min(left, *may_sleep);
      const auto ms = std::chrono::ceil<std::chrono::milliseconds>(left).count();
      epoll_event ready{};
      const int told =
          ::epoll_wait(epoll_, &ready, 1, static_cast<int>(std::max<long>(ms, 0)));
      // Interrupted sleeps are the kernel's: a ring that was closed is cleared away by
      // interrupting the thread that had it.
      if (told >= 0) ++sleeps_;
    }
    return false;
  }
  int sleeps() const { return sleeps_; }

 private:
  reactor& reactor_;
  int epoll_;
  time_limit limit_;
  int sleeps_ = 0;
};

constexpr int rounds = 1000;

/// A ball that two reactors post to each other.
struct ball : work {
  ball()
      : work([](work& w) noexcept {
          auto& self = static_cast<ball&>(w);
          if (self.bounces.fetch_add(1) + 1 >= 2 * rounds) {
            for (reactor* r : self.players) r->wake();
            return;
          }
          std::swap(self.players[0], self.players[1]);
          self.players[0]->post(w);
        }) {}
  std::array<reactor*, 2> players{};
  std::atomic<int> bounces{0};
};

task<int> return_bytes(stream& s) {
  int count = 0;
  std::array<std::byte, 1> byte{};
  for (; count < rounds; ++count) {
    if ((co_await s.receive_exactly(byte)).count() != 1) break;
    if (!(co_await s.send_all(byte)).ok()) break;
  }
  co_return count;
}

task<int> serve_bytes(stream& s) {
  int count = 0;
  std::array<std::byte, 1> byte{};
  for (; count < rounds; ++count) {
    if (!(co_await s.send_all(byte)).ok()) break;
    if ((co_await s.receive_exactly(byte)).count() != 1) break;
  }
  co_return count;
}

}  // namespace

TEST_CASE("two reactors in foreign loops lose no wake-up while they post to each other") {
  FOR_EACH_ENGINE(kind) {
    reactor_fixture here(kind);
    reactor_fixture there(kind);
    ball b;
    b.players = {&here.get(), &there.get()};
    const auto over = [&] { return b.bounces.load() >= 2 * rounds; };
    bool there_ended = false;
    std::thread other([&] {
      foreign_loop loop(there);
      there_ended = loop.run_until(over);
    });
    foreign_loop loop(here);
    here.get().post(b);
    CHECK(loop.run_until(over));
    other.join();
    CHECK(there_ended);
    CHECK(b.bounces.load() == 2 * rounds);
  }
}

TEST_CASE("completions wake a foreign loop, between threads a thousand times") {
  FOR_EACH_ENGINE(kind) {
    reactor_fixture here(kind);
    reactor_fixture there(kind);
    stream_pair p(here);
    stream far(there, p.right.release());
    bool there_ended = false;
    int returned = 0;
    std::thread other([&] {
      foreign_loop loop(there);
      running<int> returning(there, return_bytes(far));
      there_ended = loop.run_until([&] { return returning.ended(); });
      if (there_ended) returned = returning.result();
    });
    foreign_loop loop(here);
    running<int> serving(here, serve_bytes(p.left));
    CHECK(loop.run_until([&] { return serving.ended(); }));
    other.join();
    CHECK(there_ended);
    CHECK(returned == rounds);
    CHECK(serving.result() == rounds);
  }
}

// At times the writer is between making the eventfd readable and telling the ring, and at
// times two wait for the same one.
TEST_CASE("an eventfd that other threads write wakes a foreign loop every time") {
  FOR_EACH_ENGINE(kind) {
    reactor_fixture f(kind);
    foreign_loop loop(f);
    const int bell = ::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    std::atomic<int> heard{0};
    const auto listen = [&]() -> task<void> {
      std::uint64_t strokes = 0;
      while (heard.load() < rounds) {
        io_awaiter rung(f, io_kind::readable, static_cast<socket_handle>(bell));
        const io_result result = co_await rung;
        if (!result.ok()) break;
        if (::read(bell, &strokes, sizeof strokes) > 0) ++heard;
      }
    };
    std::thread ringer([&] {
      const time_limit limit;
      for (int n = 0; n < rounds && !limit.passed(); ++n) {
        const std::uint64_t stroke = 1;
        CHECK(::write(bell, &stroke, sizeof stroke) == sizeof stroke);
        while (heard.load() <= n && !limit.passed()) std::this_thread::yield();
      }
    });
    running<void> first(f, listen());
    running<void> second(f, listen());
    CHECK(loop.run_until([&] { return heard.load() == rounds; }));
    ringer.join();
    first.cancel();
    second.cancel();
    CHECK(loop.run_until([&] { return first.ended() && second.ended(); }));
    ::close(bell);
  }
}

TEST_CASE("a signal that the process waits for wakes a foreign loop that sleeps") {
  FOR_EACH_ENGINE(kind) {
    sigset_t before;
    REQUIRE(::pthread_sigmask(SIG_SETMASK, nullptr, &before) == 0);
    reactor_fixture f(kind);
    foreign_loop loop(f);
    running<received_signal> waits(f, until_signal({SIGUSR1}));
    // The loop sleeps by then, or is about to.
    std::thread sender([] {
      std::this_thread::sleep_for(20ms);
      ::kill(::getpid(), SIGUSR1);
    });
    CHECK(loop.run_until([&] { return waits.ended(); }));
    sender.join();
    CHECK(waits.result().number == SIGUSR1);
    ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
  }
}

TEST_CASE("each read of a file wakes a foreign loop") {
  FOR_EACH_ENGINE(kind) {
    reactor_fixture f(kind);
    foreign_loop loop(f);
    // Longer than all that is read.
    const file_reader program("/proc/self/exe");
    const auto read_on = [](const file_reader& from) -> task<int> {
      std::vector<std::byte> some(64 * 1024);
      int reads = 0;
      for (; reads < 100; ++reads)
        co_await from.read_at(static_cast<std::uint64_t>(reads) * 100, some);
      co_return reads;
    };
    running<int> reading(f, read_on(program));
    REQUIRE(loop.run_until([&] { return reading.ended(); }));
    CHECK(reading.result() == 100);
  }
}

TEST_CASE("timers end a foreign loop's sleep") {
  FOR_EACH_ENGINE(kind) {
    reactor_fixture f(kind);
    foreign_loop loop(f);
    struct flag : timer {
      flag() : timer([](timer& t) noexcept { static_cast<flag&>(t).expired = true; }) {}
      bool expired = false;
    } t;
    f.get().timers().arm(t, f.get().now() + 20ms);
    CHECK(loop.run_until([&] { return t.expired; }));
    CHECK(loop.sleeps() <= 5);
  }
}

TEST_CASE(
    "a foreign loop sleeps when there is nothing to do, also after requests that ended") {
  FOR_EACH_ENGINE(kind) {
    reactor_fixture f(kind);
    foreign_loop loop(f);
    stream_pair p(f);
    const int bell = ::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    const auto receive = [](stream& s) -> task<io_result> {
      std::array<std::byte, 1> byte{};
      co_return co_await s.receive_some(byte);
    };
    const auto listen = [&]() -> task<io_result> {
      io_awaiter rung(f, io_kind::readable, static_cast<socket_handle>(bell));
      co_return co_await rung;
    };
    running<io_result> receiving(f, receive(p.right));
    running<io_result> listening(f, listen());
    f.get().turn();
    f.get().turn();
    receiving.cancel();
    listening.cancel();
    CHECK(loop.run_until([&] { return receiving.ended() && listening.ended(); }));
    p.left.close();
    const std::uint64_t stroke = 1;
    CHECK(::write(bell, &stroke, sizeof stroke) == sizeof stroke);
    f.get().wake();
    const int before = loop.sleeps();
    const time_point end = f.get().now() + 50ms;
    struct nothing : timer {
      nothing() : timer([](timer&) noexcept {}) {}
    } t;
    f.get().timers().arm(t, end);
    CHECK(loop.run_until([&] { return f.get().now() >= end; }));
    CHECK(loop.sleeps() - before <= 5);
    ::close(bell);
  }
}

TEST_SUITE_END();
