// A reactor on a real engine, and tasks running on it, for the tests of this folder.
#pragma once

#include <doctest/doctest.h>

#include <chrono>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "io/engines.hpp"
#include "io/poll_engine.hpp"
#include "io/reactor.hpp"
#include "io/stream.hpp"
#include "manyworlds/coro/task.hpp"
#include "support/refused_here.hpp"

namespace manyworlds::testing {

using namespace std::chrono_literals;

inline constexpr engine_kind real_engines[] = {engine_kind::io_uring, engine_kind::epoll};

inline std::string text_of(engine_kind kind) {
  return kind == engine_kind::epoll ? "epoll" : "io_uring";
}

/// Runs the rest of the test case once per engine that this machine has.
#define FOR_EACH_ENGINE(kind)                                      \
  for (const engine_kind kind : manyworlds::testing::real_engines) \
    if (kind == engine_kind::io_uring &&                           \
        manyworlds::testing::io_uring_is_refused_here()) {         \
    } else if (INFO("engine: ", manyworlds::testing::text_of(kind)); true)

/// An engine of this machine, or the one that src/EXTENDING.md shows.
enum class tested_engine { io_uring, epoll, poll };

inline constexpr tested_engine tested_engines[] = {
    tested_engine::io_uring, tested_engine::epoll, tested_engine::poll};

inline std::string text_of(tested_engine kind) {
  return kind == tested_engine::poll    ? "poll"
         : kind == tested_engine::epoll ? "epoll"
                                        : "io_uring";
}

inline engine_choice make_engine(tested_engine kind) {
  if (kind == tested_engine::poll) return {std::make_unique<poll_engine>(), {}};
  return detail::make_engine(kind == tested_engine::epoll ? engine_kind::epoll
                                                          : engine_kind::io_uring);
}

/// Runs the rest of the test case once per such engine.
#define FOR_EVERY_ENGINE(kind)                                         \
  for (const tested_engine kind : manyworlds::testing::tested_engines) \
    if (kind == tested_engine::io_uring &&                             \
        manyworlds::testing::io_uring_is_refused_here()) {             \
    } else if (INFO("engine: ", manyworlds::testing::text_of(kind)); true)

/// A task running on a reactor beside others, as a scope's child would.
template <class T>
class running : private continuation {
 public:
  running(reactor& r, task<T> t)
      : continuation(
            [](continuation& k) noexcept -> std::coroutine_handle<> {
              static_cast<running&>(k).ended_ = true;
              return std::noop_coroutine();
            },
            &r),
        task_(std::move(t)),
        starter_(*this) {
    r.execute(starter_);
  }

  [[nodiscard]] bool ended() const noexcept { return ended_; }
  [[nodiscard]] bool cancelled() const noexcept {
    return task_.promise().outcome() == task_outcome::cancelled;
  }
  T result() { return task_.promise().take_result(); }

  /// On the reactor's thread. What has not started ends when it would have started: until
  /// then it is in the reactor's queue.
  void cancel() noexcept {
    if (task_.promise().cancel() && started_) ended_ = true;
  }

 private:
  struct starter : work {
    explicit starter(running& r) noexcept
        : work([](work& w) noexcept {
            running& r = static_cast<starter&>(w).owner;
            r.started_ = true;
            if (r.task_.promise().outcome() == task_outcome::cancelled) {
              r.ended_ = true;
            } else {
              r.task_.promise().start(r).resume();
            }
          }),
          owner(r) {}
    running& owner;
  };

  task<T> task_;
  starter starter_;
  bool started_ = false;
  bool ended_ = false;
};

/// Bounds a test's loops.
class time_limit {
 public:
  explicit time_limit(std::chrono::nanoseconds limit = 20s)
      : end_(std::chrono::steady_clock::now() + limit) {}
  [[nodiscard]] bool passed() const { return std::chrono::steady_clock::now() >= end_; }
  [[nodiscard]] time_point end() const { return end_; }

 private:
  time_point end_;
};

class reactor_fixture {
 public:
  explicit reactor_fixture(engine_kind kind, duration spin = duration::zero())
      : reactor_(detail::make_engine(kind).engine, reactor_options{spin}) {}
  explicit reactor_fixture(tested_engine kind)
      : reactor_(make_engine(kind).engine, reactor_options{}) {}

  reactor& get() noexcept { return reactor_; }
  operator reactor&() noexcept { return reactor_; }

  /// Turns, sleeping in between, until `condition()`. Fails the test, instead of hanging
  /// it, when a wake-up is lost or the condition never comes.
  template <class Condition>
  void run_until(Condition condition) {
    const time_limit limit;
    struct last_resort : timer {
      last_resort() : timer([](timer&) noexcept {}) {}
    } alarm;
    reactor_.timers().arm(alarm, limit.end());
    reactor_.run_until([&] { return condition() || limit.passed(); });
    reactor_.timers().disarm(alarm);
    REQUIRE(!limit.passed());
  }

  template <class T>
  T run(task<T> t) {
    running<T> r(reactor_, std::move(t));
    run_until([&] { return r.ended(); });
    return r.result();
  }

 private:
  reactor reactor_;
};

/// Two connected streams of one reactor.
struct stream_pair {
  stream left;
  stream right;

  explicit stream_pair(reactor_fixture& f)
      : stream_pair(f, listener(f, socket_address::loopback(0))) {}
  stream_pair(reactor_fixture& f, listener l) {
    running<io_result> dial(f, stream::connect(f, l.address(), left));
    running<io_result> take(f, accept(f, l, right));
    f.run_until([&] { return dial.ended() && take.ended(); });
    REQUIRE(dial.result().ok());
    REQUIRE(take.result().ok());
  }

  static task<io_result> accept(reactor& r, listener& l, stream& into) {
    const io_result accepted = co_await l.accept();
    if (accepted.ok()) into = stream(r, socket(r.sockets(), accepted.handle()));
    co_return accepted;
  }
};

inline std::span<const std::byte> bytes_of(std::string_view text) {
  return std::as_bytes(std::span(text.data(), text.size()));
}

}  // namespace manyworlds::testing
