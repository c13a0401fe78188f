// Members in processes of their own, a leader in the test's, and what they say to each
// other.
#pragma once

#include <doctest/doctest.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "manyworlds/mw.hpp"
#include "process.hpp"
#include "support/refused_here.hpp"

namespace manyworlds::process_tests {

/// What a healthy world's round trips may take while others are in trouble: no stall like
/// those of a world that is torn down by its library's own threads (seconds); a test
/// machine may be busy.
constexpr duration no_stall = std::chrono::seconds(1);

/// The engines of this machine; every case runs on each.
inline const std::vector<engine_kind>& engines() {
  static const std::vector<engine_kind> all = [] {
    std::vector<engine_kind> found{engine_kind::epoll};
    if (!testing::io_uring_is_refused_here()) found.push_back(engine_kind::io_uring);
    return found;
  }();
  return all;
}
inline std::string name_of(engine_kind e) {
  return e == engine_kind::io_uring ? "io_uring"
         : e == engine_kind::epoll  ? "epoll"
                                    : "automatic";
}

/// A store in a process of its own, and how members find it.
class site {
 public:
  explicit site(engine_kind e) : engine(e), store({"serve"}) {
    store_address = store.expect("listening ").substr(std::strlen("listening "));
  }

  [[nodiscard]] process member(std::vector<std::string> settings = {}) const {
    settings.push_back("engine=" + name_of(engine));
    settings.push_back("store=" + store_address);
    return process(std::move(settings));
  }
  /// A member of one world of two, which it has been told to join as rank 1.
  [[nodiscard]] process worker(const std::string& world,
                               std::vector<std::string> settings = {}) const {
    process p = member(std::move(settings));
    p.order("world " + world + " 1 2");
    return p;
  }

  engine_kind engine;
  process store;
  std::string store_address;
};

/// The member in the test's own process. Tasks run on its reactor's thread, the test on
/// the main one.
class leader {
 public:
  explicit leader(const site& s, duration heartbeat = 200ms, log_sink* log = nullptr,
                  bool reads_peers = true)
      : rt(options(s.engine, heartbeat, log, reads_peers)), store(rt, s.store_address) {}

  /// Without a log only errors are shown.
  static runtime_options options(engine_kind e, duration heartbeat, log_sink* log,
                                 bool reads_peers) {
    runtime_options o;
    o.engine = e;
    o.heartbeat = heartbeat;
    o.read_peers = reads_peers;
    o.log = log;
    o.log_from = log ? log_level::debug : log_level::error;
    return o;
  }

  template <class T>
  T finish(started<T> s, duration limit = 30s) {
    if (!s.wait_for(limit)) FAIL("a task did not end in time\n" << rt.dump());
    return s.get();
  }
  /// Runs a task of the reactor to its end, which must come in time.
  template <class T>
  T run(task<T> t, duration limit = 30s) {
    return finish(rt.start(std::move(t)), limit);
  }

  [[nodiscard]] world describe(const std::string& name, rank_t rank = 0,
                               rank_t size = 2) {
    world_options o = patience;
    o.name = name;
    o.rank = rank;
    o.size = size;
    return world(rt, store, o);
  }
  [[nodiscard]] world form(const std::string& name, rank_t rank = 0, rank_t size = 2) {
    world w = describe(name, rank, size);
    auto formed = [](world& w) -> task<void> { co_await w; };
    run(formed(w));
    return w;
  }
  [[nodiscard]] failure broken(const world& w, duration limit = 30s) {
    return run(w.broken(), limit);
  }

  world_options patience{.form = 20s};
  runtime rt;
  tcp_store store;
};

/// What a receiver of numbered messages has seen; read it when its task has ended.
struct received {
  /// Ends when `count` have come, or no more will.
  task<void> come(std::uint64_t count) {
    while (messages < count && !error) co_await changed;
  }
  void note_change() noexcept {
    changed.set();
    changed.reset();
  }

  event changed;
  std::uint64_t messages = 0;
  bool in_order = true;
  failure error;
  clock::time_point failed_at{};
  duration longest_gap{0};
};

/// Takes numbered messages of `bytes` from `peer` until something fails, or `until` says
/// so.
template <class Until>
task<void> take_stream(world& w, rank_t peer, std::size_t bytes, received& seen,
                       Until until) {
  std::vector<std::uint64_t> message(bytes / 8);
  auto last = clock::now();
  try {
    while (!until()) {
      const message_info info = co_await w.recv(message, from(peer));
      const auto now = clock::now();
      seen.longest_gap = std::max<duration>(seen.longest_gap, now - last);
      last = now;
      const std::uint64_t n = seen.messages++;
      seen.in_order &=
          info.user.value() == n && message.front() == n && message.back() == n;
      seen.note_change();
    }
  } catch (const world_error& e) {
    seen.error = e.failure();
    seen.failed_at = clock::now();
    seen.note_change();
  }
}

inline task<void> until(event& e) { co_await e; }

/// Numbered messages there and back, with a member that echoes them.
inline task<duration> ping(world& w, rank_t peer, std::uint64_t times,
                           std::size_t bytes = 64) {
  std::vector<std::uint64_t> out(bytes / 8);
  std::vector<std::uint64_t> in(bytes / 8);
  duration longest{0};
  for (std::uint64_t n = 0; n < times; ++n) {
    const auto begun = clock::now();
    out.front() = out.back() = n;
    co_await w.send(out, to(peer), {}, user_word(n));
    const message_info info = co_await w.recv(in, from(peer));
    if (info.user.value() != n || in != out) throw std::runtime_error("a wrong echo");
    longest = std::max<duration>(longest, clock::now() - begun);
  }
  co_return longest;
}

inline task<failure> failure_of_receiving(world& w, rank_t peer, std::uint64_t on = 0) {
  std::uint64_t word = 0;
  const auto got = co_await outcome(w.recv(std::span(&word, 1), from(peer), lane(on)));
  co_return got.error();
}

}  // namespace manyworlds::process_tests
