// Runtimes of one process as the members of worlds, over loopback, with a store in
// memory.
#pragma once

#include <doctest/doctest.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "manyworlds/mw.hpp"
#include "support/kept_log.hpp"
#include "world/runtime_core.hpp"

namespace manyworlds::world_tests {

using namespace std::chrono_literals;
using clock = std::chrono::steady_clock;

using testing::kept_log;

/// One runtime with a thread of its own, and a quiet log.
class node {
 public:
  explicit node(runtime_options options = {}) : rt(with_log(options)) {}

  template <class T>
  T finish(started<T> s, duration limit = 20s) {
    if (!s.wait_for(limit)) FAIL("a task did not end in time\n" << rt.dump());
    return s.get();
  }
  template <class T>
  T run(task<T> t, duration limit = 20s) {
    return finish(rt.start(std::move(t)), limit);
  }

  kept_log log;
  runtime rt;

 private:
  runtime_options with_log(runtime_options o) {
    o.log = &log;
    o.log_from = log_level::debug;
    return o;
  }
};

inline task<failure> forming(world& w) { co_return (co_await outcome(w)).error(); }

/// Into the handle itself, or why not.
inline task<failure> shrinking(world& w) {
  auto next = co_await outcome(w.shrink());
  if (next) w = std::move(*next);
  co_return next.error();
}
inline task<failure> why_not(world& w) {
  co_return (co_await outcome(w.shrink())).error();
}

/// Makes and forms a world of two.
inline void form_two(world_options options, memory_store& store, node& a, world& wa,
                     node& b, world& wb) {
  options.size = 2;
  options.rank = 0;
  wa = world(a.rt, store, options);
  options.rank = 1;
  wb = world(b.rt, store, options);
  auto first = a.rt.start(forming(wa));
  auto second = b.rt.start(forming(wb));
  const failure f = a.finish(first);
  const failure g = b.finish(second);
  REQUIRE_MESSAGE(!f, f.text());
  REQUIRE_MESSAGE(!g, g.text());
}

/// Worlds of two, formed.
class pair {
 public:
  explicit pair(const world_options& options = {.name = "pair", .form = 10s},
                runtime_options a_options = {}, runtime_options b_options = {})
      : a(a_options), b(b_options) {
    form_two(options, store, a, wa, b, wb);
  }

  memory_store store;
  node a;
  node b;
  world wa;
  world wb;
};

/// A world of three, formed.
class trio {
 public:
  explicit trio(world_options options = {.name = "trio", .form = 10s}) {
    options.size = 3;
    std::vector<started<failure>> all;
    for (std::size_t i = 0; i < 3; ++i) {
      options.rank = static_cast<rank_t>(i);
      worlds[i] = world(nodes[i].rt, store, options);
      all.push_back(nodes[i].rt.start(forming(worlds[i])));
    }
    for (std::size_t i = 0; i < 3; ++i) REQUIRE_FALSE(nodes[i].finish(all[i]));
  }

  memory_store store;
  node nodes[3];
  world worlds[3];
};

/// One word there and back.
inline void check_alive(node& a, world& wa, node& b, world& wb) {
  auto send = [](world& w, rank_t peer) -> task<void> {
    const std::uint64_t word = 42;
    co_await w.send(std::span(&word, 1), to(peer));
  };
  auto recv = [](world& w, rank_t peer) -> task<std::uint64_t> {
    std::uint64_t word = 0;
    co_await w.recv(std::span(&word, 1), from(peer));
    co_return word;
  };
  a.run(send(wa, wb.rank()));
  CHECK(b.run(recv(wb, wa.rank())) == 42);
  b.run(send(wb, wa.rank()));
  CHECK(a.run(recv(wa, wb.rank())) == 42);
}

}  // namespace manyworlds::world_tests
