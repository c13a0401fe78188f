// Sessions for tests, of threads, of processes and over nodes.
#pragma once

#include <doctest/doctest.h>

#include <chrono>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "session_functions.hpp"
#include "session_over_nodes.hpp"

namespace manyworlds::spmd_tests {

using namespace std::chrono_literals;

enum class worker_kind {
  threads,
  processes,
  nodes,
  mixed  ///< worker 0 is a thread
};

/// Precondition: it is not over nodes, which need a runtime of their own.
inline task<session> start_session(runtime& rt, worker_kind kind, int workers,
                                   session_options limits = {}) {
  if (kind == worker_kind::threads) {
    return session::start(rt, threads(workers, test_functions(), limits));
  }
  processes how{.workers = workers, .program = SESSION_WORKER, .limits = limits};
  if (kind == worker_kind::mixed) how.worker0 = in_controller(test_functions());
  return session::start(rt, how);
}

/// Runs `body(session&)` with a session, within a time.
template <class Body>
void in_session(worker_kind kind, int workers, Body body, session_options limits = {}) {
  if (kind == worker_kind::nodes) {
    const int count = workers % 2 == 0 ? 2 : 1;
    session_over_nodes all(count, workers / count, limits);
    std::vector<std::unique_ptr<node_of_test>> agents;
    for (int node = 0; node < count; ++node)
      agents.push_back(std::make_unique<node_of_test>(all.address(), node));
    return all.run(body);
  }
  runtime rt;
  auto whole = [&]() -> task<void> {
    session s = co_await start_session(rt, kind, workers, limits);
    co_await body(s);
    co_await s.close();
  };
  rt.run(in_time(whole()));
}

/// Runs `body(session&)` with a session of each kind.
template <class Body>
void in_each_kind(int workers, Body body, session_options limits = {}) {
  for (const worker_kind kind : {worker_kind::threads, worker_kind::processes,
                                 worker_kind::nodes, worker_kind::mixed}) {
    CAPTURE(static_cast<int>(kind));
    in_session(kind, workers, body, limits);
  }
}

/// What an await threw as call_error.
struct refusal {
  enum cause cause = cause::none;
  std::string text;
  std::vector<worker_text> workers;
  std::uint64_t call = 0;
  std::string function;

  [[nodiscard]] bool says(const std::string& words) const {
    return text.find(words) != std::string::npos;
  }
};

template <class Call>
task<refusal> refusal_of(Call call) {
  try {
    static_cast<void>(co_await std::move(call));
  } catch (const call_error& e) {
    co_return refusal{e.cause(), e.what(), e.workers(), e.call(), e.function()};
  }
  co_return refusal{};
}

}  // namespace manyworlds::spmd_tests
