// Orders about services: who accepts, who connects, and what becomes of their worlds.
//
//   accept SERVICE           for each peer: met SERVICE WORLD EPOCH PID, and, when its
//                            world fails: lost SERVICE CAUSE PID
//   connect SERVICE          each time: connected SERVICE WORLD EPOCH PID | lost SERVICE
//                            CAUSE PID; echoes words until the acceptor leaves
//   come_and_go SERVICE N    connects and leaves N times; came SERVICE DESCRIPTORS
//                            THREADS after the first and the last tenth of them
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "manyworlds/mw.hpp"
#include "support/entries.hpp"
#include "traffic_orders.hpp"

namespace manyworlds::process_tests {

inline std::string of_world(const world& w) {
  return w.name().str() + " " + std::to_string(w.epoch()) + " " +
         std::to_string(w.view().member(1 - w.rank()).identity.pid);
}

/// Sends back each word of the peer.
inline task<void> echo_words(world& w) {
  const rank_t peer = 1 - w.rank();
  for (;;) {
    std::uint64_t word = 0;
    co_await w.recv(std::span(&word, 1), from(peer));
    co_await w.send(std::span(&word, 1), to(peer));
  }
}

/// A word there and back.
inline task<void> check_echo(world& w, std::uint64_t word) {
  const rank_t peer = 1 - w.rank();
  std::uint64_t answer = 0;
  co_await w.send(std::span(&word, 1), to(peer));
  co_await w.recv(std::span(&answer, 1), from(peer));
  if (answer != word) throw std::runtime_error("a wrong echo");
}

inline void tell_lost(const std::string& service, const failure& f) {
  tell("lost " + service + " " + std::string(name_of(f.cause)) + " " +
       std::to_string(f.peer.pid));
}

inline task<void> accept_peers(runtime& rt, store& st, std::string service,
                               world_options o) {
  auto body = [&](world& w) -> task<void> {
    tell("met " + service + " " + of_world(w));
    co_await check_echo(w, w.epoch());
    const failure f = co_await w.broken();
    tell_lost(service, f);
  };
  co_await accept(rt, st, {.service = service, .world = o}, body);
}

inline task<void> connect_to(runtime& rt, store& st, std::string service,
                             world_options o) {
  auto body = [&](world& w) -> task<void> {
    tell("connected " + service + " " + of_world(w));
    const auto ended = co_await outcome(echo_words(w));
    tell_lost(service, ended.error());
    throw world_error(ended.error());
  };
  co_await connect(rt, st, {.service = service, .world = o}, body,
                   after_close::form_again);
}

inline task<void> come_and_go(runtime& rt, store& st, std::string service, int times) {
  auto body = [](world& w) -> task<void> {
    std::uint64_t word = 0;
    co_await w.recv(std::span(&word, 1), from(0));
    co_await w.send(std::span(&word, 1), to(0));
  };
  for (int i = 1; i <= times; ++i) {
    co_await connect(rt, st, {.service = service}, body);
    if (i == times / 10 || i == times) {
      tell("came " + service + " " + std::to_string(testing::open_descriptors()) + " " +
           std::to_string(testing::entries("/proc/self/task")));
    }
  }
}

}  // namespace manyworlds::process_tests
