// Operations on a world from tasks of several runtimes, with stop tokens triggered on
// other threads and deadlines that race with completion: every operation ends once, and
// no message is lost.
#include <doctest/doctest.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <stop_token>
#include <thread>
#include <vector>

#include "manyworlds/mw.hpp"

namespace mw = manyworlds;
using namespace std::chrono_literals;

namespace {

constexpr int rounds = 300;

struct tally {
  std::atomic<int> sent{0};
  std::atomic<int> send_gave_up{0};
  std::atomic<int> received{0};
  std::atomic<int> receive_gave_up{0};
  std::atomic<int> other{0};
};

bool gave_up(const mw::failure& f) {
  return f.cause == mw::cause::cancelled || f.cause == mw::cause::timed_out;
}

/// Sends numbered messages on a lane of its own, each with a token that another thread
/// may trigger.
mw::task<void> send_all(mw::world& w, mw::lane on, std::size_t count, tally& t,
                        std::vector<std::stop_source>& sources) {
  std::vector<std::uint64_t> data(count);
  for (int i = 0; i < rounds; ++i) {
    for (auto& x : data) x = static_cast<std::uint64_t>(i);
    auto r =
        co_await mw::outcome(w.send(data, mw::to{1}, on)
                                 .stop(sources[static_cast<std::size_t>(i)].get_token())
                                 .within(5s));
    (r ? t.sent : gave_up(r.error()) ? t.send_gave_up : t.other)++;
  }
  const std::uint64_t last = ~std::uint64_t{0};
  for (auto& x : data) x = last;
  co_await w.send(data, mw::to{1}, on);
}

/// Takes what comes, giving up now and then, until the last message; checks order and
/// content.
mw::task<void> receive_all(mw::world& w, mw::lane on, std::size_t count, tally& t) {
  std::vector<std::uint64_t> data(count);
  std::int64_t before = -1;
  for (int i = 0;; ++i) {
    auto r =
        co_await mw::outcome(w.recv(data, mw::from{0}, on)
                                 .within(i % 3 ? mw::duration(5s) : mw::duration(20us)));
    if (!r) {
      if (r.error().cause != mw::cause::cancelled_by_peer) {
        (gave_up(r.error()) ? t.receive_gave_up : t.other)++;
      }
      continue;
    }
    CHECK(std::all_of(data.begin(), data.end(), [&](auto x) { return x == data[0]; }));
    if (data[0] == ~std::uint64_t{0}) co_return;
    CHECK(static_cast<std::int64_t>(data[0]) > before);
    before = static_cast<std::int64_t>(data[0]);
    t.received++;
  }
}

mw::task<void> form(mw::world& w) { co_await w; }
mw::task<void> leave(mw::world& w) { co_await w.leave(); }

}  // namespace

TEST_SUITE_BEGIN("world");

TEST_CASE(
    "operations of other runtimes, stopped from other threads, end once (laws 1, 5, "
    "10)") {
  mw::memory_store store;
  mw::runtime home_a, home_b, other;
  mw::world a(home_a, store, {.name = "shared", .rank = 0, .size = 2, .form = 10s});
  mw::world b(home_b, store, {.name = "shared", .rank = 1, .size = 2, .form = 10s});
  auto formed_a = home_a.start(form(a));
  auto formed_b = home_b.start(form(b));
  formed_a.get();
  formed_b.get();

  struct pair {
    std::size_t count;
    bool is_remote;
    tally t;
    std::vector<std::stop_source> sources = std::vector<std::stop_source>(rounds);
  };
  // Eager and offered messages; tasks at the world's home and elsewhere.
  pair pairs[] = {
      {16, false, {}}, {16, true, {}}, {16'000, false, {}}, {16'000, true, {}}};
  std::vector<mw::started<void>> running;
  std::uint64_t number = 1;
  for (pair& p : pairs) {
    const mw::lane on{number++};
    running.push_back(
        (p.is_remote ? other : home_a).start(send_all(a, on, p.count, p.t, p.sources)));
    running.push_back(
        (p.is_remote ? other : home_b).start(receive_all(b, on, p.count, p.t)));
  }
  std::jthread stopper([&](std::stop_token end) {
    for (int i = 0; i < rounds && !end.stop_requested(); i += 2) {
      for (pair& p : pairs) p.sources[static_cast<std::size_t>(i)].request_stop();
    }
  });
  for (auto& r : running) {
    REQUIRE_MESSAGE(r.wait_for(60s), home_a.dump());
    r.get();
  }
  stopper.request_stop();
  for (pair& p : pairs) {
    CHECK(p.t.sent + p.t.send_gave_up == rounds);
    CHECK(p.t.other == 0);
    // What was accepted arrives; a send that gave up may or may not have been taken.
    CHECK(p.t.received >= p.t.sent);
    CHECK(p.t.received <= p.t.sent + p.t.send_gave_up);
  }
  CHECK(a.state() == mw::world_state::up);
  CHECK(b.state() == mw::world_state::up);
  auto left_a = home_a.start(leave(a));
  auto left_b = home_b.start(leave(b));
  left_a.get();
  left_b.get();
}

TEST_SUITE_END();
