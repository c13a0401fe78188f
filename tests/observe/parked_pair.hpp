// Parked pair: two runtimes in one process form a world; rank 0 waits for a message, and
// then user code blocks its reactor until the test lets it go.
#pragma once

#include <future>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "manyworlds/coro/scope.hpp"
#include "manyworlds/store/memory_store.hpp"
#include "manyworlds/world/runtime.hpp"
#include "manyworlds/world/world.hpp"

namespace manyworlds::observe_tests {

using namespace std::chrono_literals;

/// How long anything may take before the test calls it a hang.
inline constexpr auto enough = 20s;

/// Lines by level, from any thread.
class kept_log final : public log_sink {
 public:
  void write(log_level level, std::string_view line) noexcept override {
    const std::lock_guard lock(mutex_);
    lines_.emplace_back(std::string(name_of(level)) + ": " + std::string(line));
  }
  [[nodiscard]] bool has(std::string_view part) const {
    const std::lock_guard lock(mutex_);
    for (const std::string& l : lines_) {
      if (l.find(part) != l.npos) return true;
    }
    return false;
  }

 private:
  mutable std::mutex mutex_;
  std::vector<std::string> lines_;
};

inline runtime_options logging_to(log_sink& sink, log_level from) {
  runtime_options o;
  o.log = &sink;
  o.log_from = from;
  return o;
}

class parked_pair {
 public:
  parked_pair() : left_(left.start(be_left())), right_(right.start(be_right())) {
    is_blocked_ = blocked_.get_future().wait_for(enough) == std::future_status::ready &&
                  right_waits_.get_future().wait_for(enough) == std::future_status::ready;
  }
  ~parked_pair() { finish(); }
  parked_pair(const parked_pair&) = delete;
  parked_pair& operator=(const parked_pair&) = delete;

  /// ... and rank 1 waits for rank 0, on a reactor that is free.
  [[nodiscard]] bool is_blocked() const { return is_blocked_; }

  /// Lets the reactor go on; the parked receive ends and both members leave.
  void finish() {
    if (std::exchange(finished_, true)) return;
    release_.set_value();
    left_.get();
    right_.get();
  }

  kept_log log;
  runtime left{logging_to(log, log_level::info)};
  runtime right{logging_to(log, log_level::info)};
  /// Where the parked receive stands.
  unsigned receive_line = 0;

 private:
  world_options member(rank_t rank) {
    world_options o;
    o.name = "pair";
    o.rank = rank;
    o.size = 2;
    o.form = enough;
    // The test blocks a reactor and the machine is shared: silence breaks nothing here.
    o.suspect_after = o.broken_after = 60s;
    return o;
  }

  task<void> receive(world& w) {
    std::vector<float> x(16);
    receive_line = __LINE__ + 1;
    co_await w.recv(x, from{1}, lane(7));
  }

  task<void> block(world& w) {
    blocked_.set_value();
    release_.get_future().wait();
    const float go = 1;
    co_await w.send(std::span(&go, 1), to{1}, lane(8));
  }

  task<void> be_left() {
    world w(left, store_, member(0));
    co_await w;
    // In this order: what is spawned first has parked when the second starts.
    auto both = [&](scope& s) -> task<void> {
      s.spawn(receive(w));
      s.spawn(block(w));
      co_return;
    };
    co_await scope::run(both);
    co_await w.leave();
  }

  task<void> answer(world& w) {
    float go = 0;
    co_await w.recv(std::span(&go, 1), from{0}, lane(8));
    std::vector<float> x(16, go);
    co_await w.send(x, to{0}, lane(7));
  }

  task<void> tell() {
    right_waits_.set_value();
    co_return;
  }

  task<void> be_right() {
    world w(right, store_, member(1));
    co_await w;
    auto both = [&](scope& s) -> task<void> {
      s.spawn(answer(w));
      s.spawn(tell());
      co_return;
    };
    co_await scope::run(both);
    co_await w.leave();
  }

  memory_store store_;
  std::promise<void> blocked_;
  std::promise<void> release_;
  std::promise<void> right_waits_;
  bool is_blocked_ = false;
  bool finished_ = false;
  started<void> left_;
  started<void> right_;
};

}  // namespace manyworlds::observe_tests
