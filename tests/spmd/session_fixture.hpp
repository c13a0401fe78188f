// Sessions for tests, of threads and of processes.
#pragma once

#include <doctest/doctest.h>

#include <chrono>
#include <cstdlib>
#include <string>
#include <utility>

#include "session_functions.hpp"

namespace manyworlds::spmd_tests {

using namespace std::chrono_literals;

enum class worker_kind { threads, processes };

inline task<session> start_session(runtime& rt, worker_kind kind, int workers,
                                   session_options limits = {}) {
  if (kind == worker_kind::threads) {
    return session::start(rt, threads(workers, test_functions(), limits));
  }
  return session::start(
      rt, processes{.workers = workers, .program = SESSION_WORKER, .limits = limits});
}

inline duration longest_session() {
  const char* const seconds = std::getenv("MANYWORLDS_SESSION_SECONDS");
  return 60s + std::chrono::seconds(seconds ? std::atoi(seconds) : 0);
}

/// Runs `body(session&)` with a session, within a time.
template <class Body>
void in_session(worker_kind kind, int workers, Body body, session_options limits = {}) {
  runtime rt;
  auto whole = [&]() -> task<void> {
    session s = co_await start_session(rt, kind, workers, limits);
    co_await body(s);
    co_await s.close();
  };
  rt.run([](task<void> all) -> task<void> {
    co_await within(std::move(all), longest_session());
  }(whole()));
}

/// Runs `body(session&)` with a session of each kind.
template <class Body>
void in_each_kind(int workers, Body body, session_options limits = {}) {
  for (const worker_kind kind : {worker_kind::threads, worker_kind::processes}) {
    CAPTURE(kind == worker_kind::threads);
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
