// Worlds in programs that have a loop, and coroutines, of their own.
#include <sys/epoll.h>
#include <unistd.h>

#if __has_include(<asio.hpp>)
#include <asio/io_context.hpp>
#include <asio/posix/stream_descriptor.hpp>
#include <asio/steady_timer.hpp>
#define HAS_ASIO 1
#else
#define HAS_ASIO 0
#endif

#include <algorithm>
#include <atomic>
#include <functional>
#include <optional>
#include <stop_token>

#include "../coro/foreign_coroutine.hpp"
#include "support/refused_here.hpp"
#include "world_fixture.hpp"

namespace manyworlds::world_tests {

using testing::foreign_coroutine;

TEST_SUITE_BEGIN("world");

namespace {

constexpr std::uint64_t rounds = 200;

std::vector<engine_kind> engines() {
  std::vector<engine_kind> all{engine_kind::epoll};
  if (!testing::io_uring_is_refused_here()) all.push_back(engine_kind::io_uring);
  return all;
}

/// Joins, answers `rounds` questions, and leaves with its world.
task<std::uint64_t> answer(runtime& rt, store& st) {
  world w(rt, st, {.name = "embedded", .rank = 1, .size = 2, .form = 10s});
  co_await w;
  std::vector<std::uint64_t> data(20'000);
  std::uint64_t n = 0;
  for (; n < rounds; ++n) {
    co_await w.recv(data, from(0));
    co_await w.send(data, to(0));
  }
  co_await w.broken();
  co_return n;
}

task<std::uint64_t> ask(runtime& rt, store& st) {
  world w(rt, st, {.name = "embedded", .rank = 0, .size = 2, .form = 10s});
  co_await w;
  std::vector<std::uint64_t> data(20'000);
  std::uint64_t right = 0;
  for (std::uint64_t n = 0; n < rounds; ++n) {
    data.front() = data.back() = n;
    co_await w.send(data, to(1));
    std::fill(data.begin(), data.end(), 0);
    co_await w.recv(data, from(1));
    right += data.front() == n && data.back() == n;
  }
  // Timers are the loop's too.
  const auto late = co_await outcome(w.recv(data, from(1)).within(20ms));
  right += late.error().cause == cause::timed_out;
  co_await w.leave();
  co_return right;
}

}  // namespace

TEST_CASE("a world lives in a foreign epoll loop that knows only a descriptor") {
  for (const engine_kind e : engines()) {
    CAPTURE(static_cast<int>(e));
    memory_store store;
    node peer;
    node embedded({.engine = e});
    const int epoll = ::epoll_create1(EPOLL_CLOEXEC);
    epoll_event interest{};
    interest.events = EPOLLIN;
    REQUIRE(::epoll_ctl(epoll, EPOLL_CTL_ADD, embedded.rt.descriptor(), &interest) == 0);
    embedded.rt.poll();
    auto answering = peer.rt.start(answer(peer.rt, store));
    auto asking = embedded.rt.start(ask(embedded.rt, store));
    int sleeps = 0;
    for (const auto until = clock::now() + 20s;
         !asking.is_ready() && clock::now() < until;) {
      embedded.rt.poll();
      const auto may_sleep = embedded.rt.prepare_wait();
      if (may_sleep == duration::zero()) continue;
      const auto span = std::min<duration>(may_sleep.value_or(10s), 10s);
      epoll_event ready{};
      ::epoll_wait(
          epoll, &ready, 1,
          static_cast<int>(std::chrono::ceil<std::chrono::milliseconds>(span).count()));
      ++sleeps;
    }
    REQUIRE(asking.is_ready());
    CHECK(asking.get() == rounds + 1);
    CHECK(peer.finish(answering) == rounds);
    // It slept instead of spinning.
    CHECK(sleeps > 0);
    ::close(epoll);
  }
}

#if HAS_ASIO
TEST_CASE("a world lives in an Asio io_context beside its other work") {
  for (const engine_kind e : engines()) {
    CAPTURE(static_cast<int>(e));
    memory_store store;
    node peer;
    node embedded({.engine = e});
    asio::io_context loop;
    asio::posix::stream_descriptor bell(loop, ::dup(embedded.rt.descriptor()));
    asio::steady_timer alarm(loop);
    embedded.rt.poll();
    auto answering = peer.rt.start(answer(peer.rt, store));
    auto asking = embedded.rt.start(ask(embedded.rt, store));
    const auto until = clock::now() + 20s;
    std::function<void()> turn = [&] {
      std::optional<duration> may_sleep;
      do {
        embedded.rt.poll();
        if (asking.is_ready() || clock::now() > until) {
          alarm.cancel();
          bell.close();
          return;
        }
        may_sleep = embedded.rt.prepare_wait();
      } while (may_sleep == duration::zero());
      alarm.expires_after(std::min<duration>(may_sleep.value_or(10s), 10s));
      // Whichever comes first takes the other back and turns.
      alarm.async_wait([&](const asio::error_code& error) {
        if (!error) bell.cancel();
      });
      bell.async_wait(asio::posix::stream_descriptor::wait_read,
                      [&](const asio::error_code&) {
                        alarm.cancel();
                        turn();
                      });
    };
    turn();
    loop.run();
    REQUIRE(asking.is_ready());
    CHECK(asking.get() == rounds + 1);
    CHECK(peer.finish(answering) == rounds);
  }
}
#endif

TEST_CASE("a task that turns the runtime it runs on is refused, and goes on") {
  kept_log log;
  runtime_options options;
  options.log = &log;
  runtime rt(options);
  std::string said;
  std::string said_of_wait;
  auto polls = [&]() -> task<void> {
    try {
      rt.poll();
    } catch (const std::logic_error& e) {
      said = e.what();
    }
    try {
      static_cast<void>(rt.prepare_wait());
    } catch (const std::logic_error& e) {
      said_of_wait = e.what();
    }
    co_return;
  };
  rt.poll();
  auto ended = rt.start(polls());
  for (int i = 0; i < 1000 && !ended.is_ready(); ++i) rt.poll();
  CHECK(ended.is_ready());
  CHECK(said == "runtime::poll: a turn runs already; a task awaits instead");
  CHECK(said_of_wait == "runtime::prepare_wait: a turn runs; a task awaits instead");
}

TEST_CASE("both ends of a world count the same bytes, however they have travelled") {
  pair p;
  auto talk = [](world& w) -> task<void> {
    for (const std::size_t size : {0U, 10U, 5'000U, 50'000U, 500'000U}) {
      std::vector<std::byte> x(size);
      const std::uint64_t head = size;
      if (w.rank() == 0) {
        co_await w.send(x, to{1});
        co_await w.send_message(head, x, to{1});
      } else {
        co_await w.recv(x, from{0});
        co_await w.recv_message<std::uint64_t>(from{0});
        co_await w.recv(x, from{0});
      }
    }
    co_await w.barrier();
  };
  const auto counted = [](world& w) -> task<transfer_counters> {
    co_return w.counters();
  };
  auto giving = p.a.rt.start(talk(p.wa));
  p.b.run(talk(p.wb));
  p.a.finish(giving);
  const transfer_counters sent = p.a.run(counted(p.wa));
  const transfer_counters received = p.b.run(counted(p.wb));
  CHECK(sent.messages_sent == received.messages_received);
  CHECK(sent.bytes_sent == received.bytes_received);
}

TEST_CASE(
    "two runtimes of one process know nothing of each other: one ends, the other goes "
    "on") {
  memory_store one;
  memory_store two;
  pair p;
  {
    node other;
    world w(other.rt, one, {.name = "pair", .rank = 0, .size = 1});
    CHECK(!other.run(forming(w)));
    other.run(w.leave());
  }
  check_alive(p.a, p.wa, p.b, p.wb);
  CHECK(p.wa.epoch() == 1);
}

TEST_CASE(
    "a coroutine of another library awaits a world, and is told how each await ended") {
  pair p;
  std::atomic<bool> done{false};
  std::uint64_t got = 0;
  cause stopped_by = cause::none;
  cause late_by = cause::none;
  std::stop_source stop;
  auto waits = [&]() -> foreign_coroutine {
    std::uint64_t word = 41;
    co_await p.wa.send(std::span(&word, 1), to(1));
    co_await p.wa.recv(std::span(&word, 1), from(1));
    got = word;
    try {
      co_await p.wa.recv(std::span(&word, 1), from(1)).within(10ms);
    } catch (const world_error& e) {
      late_by = e.cause();
    }
    const auto r =
        co_await p.wa.recv(std::span(&word, 1), from(1)).stop(stop.get_token());
    (void)r;
  };
  auto guarded = [&]() -> foreign_coroutine {
    std::uint64_t word = 0;
    try {
      co_await p.wa.recv(std::span(&word, 1), from(1), lane(1)).stop(stop.get_token());
    } catch (const world_error& e) {
      stopped_by = e.cause();
    }
    done = true;
  };
  auto echo = [&]() -> task<void> {
    std::uint64_t word = 0;
    co_await p.wb.recv(std::span(&word, 1), from(0));
    ++word;
    co_await p.wb.send(std::span(&word, 1), to(0));
  };
  auto echoing = p.b.rt.start(echo());
  foreign_coroutine first = waits();
  foreign_coroutine second = guarded();
  p.b.finish(echoing);
  // Both wait with the token: the stop comes from another thread than the one that
  // resumes them.
  auto until_late = [&]() -> task<void> {
    while (late_by == cause::none) co_await sleep_for(1ms);
    co_await sleep_for(1ms);
  };
  p.a.run(until_late());
  stop.request_stop();
  auto until_done = [&]() -> task<void> {
    while (!done || !first.is_done() || !second.is_done()) co_await sleep_for(1ms);
  };
  p.a.run(until_done());
  CHECK(got == 42);
  CHECK(late_by == cause::timed_out);
  CHECK(stopped_by == cause::cancelled);
  CHECK_THROWS_AS(first.rethrow(), world_error);
  check_alive(p.a, p.wa, p.b, p.wb);
}

namespace {

/// Counts its lives: g++ 12.2 destroys some temporaries of awaited expressions twice.
struct counted {
  static inline std::atomic<int> constructions{0};
  static inline std::atomic<int> destructions{0};
  explicit counted(int v) : value(v) { ++constructions; }
  counted(const counted& o) : value(o.value) { ++constructions; }
  ~counted() { ++destructions; }
  int value;
};

}  // namespace

TEST_CASE("g++ 12: world calls in awaited expressions destroy each temporary once") {
  memory_store store;
  node a;
  node b;
  auto one_side = [&](node& n, rank_t rank, const counted& c) -> task<int> {
    world w(n.rt, store, {.name = "g++", .rank = rank, .size = 2, .form = 10s});
    co_await w;
    int value = c.value;
    int other = 0;
    co_await when_all(
        w.send(std::span(&value, 1), to(1 - rank), lane(3), user_word(7)).within(5s),
        w.recv(std::span(&other, 1), from(1 - rank), lane(3)).within(5s));
    const auto r =
        co_await outcome(w.recv(std::span(&other, 1), from(1 - rank)).within(1ms));
    co_await w.barrier();
    co_await w.leave();
    co_return r.error().cause == cause::timed_out ? other : -1;
  };
  auto keeps = [&](node& n, rank_t rank) -> task<int> {
    int result = 0;
    auto body = [&](world& w) -> task<void> {
      co_await w.barrier();
      ++result;
    };
    // Options, a store and a body with captures, in the awaited expression itself.
    co_await keep(n.rt, store, {.name = "kept", .rank = rank, .size = 2, .form = 10s},
                  body);
    co_return result;
  };
  auto all = [&](node& n, rank_t rank) -> task<int> {
    const int other = co_await one_side(n, rank, counted(100 + rank));
    co_return other * 10 + co_await keeps(n, rank);
  };
  auto first = a.rt.start(all(a, 0));
  auto second = b.rt.start(all(b, 1));
  CHECK(a.finish(first) == 1011);
  CHECK(b.finish(second) == 1001);
  CHECK(counted::constructions == counted::destructions);
  CHECK(counted::constructions >= 2);
}

TEST_SUITE_END();

}  // namespace manyworlds::world_tests
