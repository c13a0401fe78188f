// Processes that end in ways of their own: by exit() inside a task of a runtime of static
// lifetime, or in order at a signal.
//
//   member ending exit run|start STORE    formed; at a line of input: log LINE, and
//   status 3
//   member ending blocked STORE           blocked; at a line of input: log LINE,
//   destroyed member ending signal STORE ENGINE     ready, formed NAME | came SIGNAL,
//   left | status
//   0
#pragma once

#include <chrono>
#include <csignal>
#include <cstdlib>
#include <iostream>
#include <semaphore>
#include <string>
#include <vector>

#include "manyworlds/mw.hpp"
#include "traffic_orders.hpp"

namespace manyworlds::process_tests {

using namespace std::chrono_literals;

/// Tells the test what the log gets.
class telling_log final : public log_sink {
 public:
  void write(log_level, std::string_view line) noexcept override {
    tell("log " + std::string(line));
  }
};

inline task<void> exit_when_formed(runtime& rt, store& st) {
  world w(rt, st, {.name = "edge", .rank = 1, .size = 2, .form = 20s});
  co_await w;
  tell("formed");
  // The other member's world may still be about to be up.
  std::string line;
  std::getline(std::cin, line);
  std::exit(3);
}

inline int end_by_exit(const std::string& how, const std::string& store_address) {
  static telling_log log;
  static runtime rt({.log = &log, .log_from = log_level::error});
  static tcp_store st(rt, store_address);
  if (how == "run") {
    rt.run(exit_when_formed(rt, st));
  } else {
    rt.start(exit_when_formed(rt, st)).get();
  }
  return 0;
}

/// What is left behind stays reachable, as the leak sanitizer wants it.
inline void* left_behind = nullptr;

/// Destroys its runtime while a function that it has offloaded does not return.
inline int end_beside_a_blocked_function(const std::string& store_address) {
  telling_log log;
  std::binary_semaphore may_return(0);
  worker_thread worker;
  auto blocks = [&] {
    tell("blocked");
    may_return.acquire();
  };
  {
    runtime rt({.log = &log, .log_from = log_level::error});
    tcp_store st(rt, store_address);
    auto offloads = [&]() -> task<void> {
      world w(rt, st, {.name = "edge", .rank = 1, .size = 2, .form = 20s});
      left_behind = &w;
      co_await w;
      co_await offload(worker, blocks);
    };
    auto blocked = rt.start(offloads());
    std::string line;
    std::getline(std::cin, line);
  }
  tell("destroyed");
  may_return.release();
  return 0;
}

/// As the page on shutting down has it: the runtime, a service, and the signal.
inline int end_by_signal(const std::string& store_address, const std::string& engine) {
  runtime_options options;
  if (engine == "epoll") options.engine = engine_kind::epoll;
  options.log_from = log_level::error;
  runtime rt(options);
  tcp_store st(rt, store_address);
  auto body = [](world& w) -> task<void> {
    tell("formed " + w.name().str());
    std::uint64_t word = 0;
    // Until the other member says that it is the last.
    do {
      co_await w.recv(std::span(&word, 1), from(0));
    } while (word != 0);
  };
  auto serving =
      rt.start(keep(rt, st, {.name = "served", .rank = 1, .size = 2, .form = 20s}, body));
  auto waiting =
      rt.start(keep(rt, st, {.name = "lonely", .rank = 1, .size = 2, .form = 20s}, body));
  auto terminated = rt.start(until_signal({SIGTERM, SIGINT}));
  tell("ready");
  const received_signal came = terminated.get();
  tell("came " + came.text() + " " + std::to_string(came.sender));
  rt.stop(20s);
  serving.get();
  waiting.get();
  tell("left");
  return 0;
}

inline int end_as_told(const std::vector<std::string>& how) {
  if (how.at(0) == "blocked") return end_beside_a_blocked_function(how.at(1));
  if (how.at(0) == "exit") return end_by_exit(how.at(1), how.at(2));
  return end_by_signal(how.at(1), how.at(2));
}

}  // namespace manyworlds::process_tests
