// A simulated process with one reactor, and tasks on it: what tests of anything under
// simulation share.
#pragma once

#include <cstdio>
#include <exception>
#include <list>
#include <memory>
#include <string>
#include <utility>

#include "io/reactor.hpp"
#include "manyworlds/coro/task.hpp"
#include "manyworlds/testing/simulation.hpp"

namespace manyworlds_tests {

namespace mw = manyworlds;

/// A task that no other awaits, and how it ended.
class root_task final : mw::continuation {
 public:
  root_task(mw::reactor& home, mw::task<void> body)
      : continuation(
            [](continuation& k) noexcept { return static_cast<root_task&>(k).end(); },
            &home),
        body_(std::move(body)),
        start_(*this),
        cancel_(*this) {
    home.post(start_);
  }

  [[nodiscard]] bool has_ended() const noexcept { return ended_; }
  /// Throws what the task threw.
  void check() {
    if (has_ended() && body_.promise().outcome() == mw::task_outcome::threw) {
      body_.promise().take_result();
    }
  }
  void cancel() noexcept {
    if (!ended_) home().post(cancel_);
  }

 private:
  struct starter final : mw::work {
    explicit starter(root_task& r) noexcept
        : work([](work& w) noexcept {
            root_task& root = static_cast<starter&>(w).root;
            root.body_.promise().start(root).resume();
          }),
          root(r) {}
    root_task& root;
  };
  struct canceller final : mw::work {
    explicit canceller(root_task& r) noexcept
        : work([](work& w) noexcept {
            root_task& root = static_cast<canceller&>(w).root;
            if (!root.ended_ && root.body_.promise().cancel()) root.ended_ = true;
          }),
          root(r) {}
    root_task& root;
  };

  std::coroutine_handle<> end() noexcept {
    ended_ = true;
    return std::noop_coroutine();
  }

  mw::task<void> body_;
  starter start_;
  canceller cancel_;
  bool ended_ = false;
};

/// A process of a simulation with one reactor. It may be killed; destroying it ends its
/// tasks.
class simulated_node {
 public:
  simulated_node(mw::simulation& sim, std::string name)
      : simulated_node(sim, sim.add_process(std::move(name))) {}
  simulated_node(mw::simulation& sim, mw::simulated_process& process)
      : sim_(sim),
        process_(process),
        reactor_(process.make_engine(mw::engine_kind::automatic).engine, {.spin = {}}) {
    process_.attach(reactor_);
  }
  simulated_node(const simulated_node&) = delete;
  simulated_node& operator=(const simulated_node&) = delete;

  ~simulated_node() {
    end();
    process_.detach(reactor_);
  }

  void spawn(mw::task<void> body) { tasks_.emplace_back(reactor_, std::move(body)); }

  /// Cancels its tasks, waits for them and destroys them, also in a killed process:
  /// before anything is destroyed that they use.
  void end() noexcept {
    sim_.resume(process_);
    sim_.release(process_);
    for (root_task& t : tasks_) t.cancel();
    if (!sim_.run_until([&] { return has_ended(); })) {
      std::fputs(sim_.describe().c_str(), stderr);
      std::terminate();
    }
    tasks_.clear();
  }
  [[nodiscard]] bool has_ended() const noexcept {
    for (const root_task& t : tasks_) {
      if (!t.has_ended()) return false;
    }
    return true;
  }
  /// Throws what the first task that failed threw.
  void check() {
    for (root_task& t : tasks_) t.check();
  }

  [[nodiscard]] mw::reactor& home() noexcept { return reactor_; }
  [[nodiscard]] mw::simulated_process& process() noexcept { return process_; }

 private:
  mw::simulation& sim_;
  mw::simulated_process& process_;
  mw::reactor reactor_;
  std::list<root_task> tasks_;
};

}  // namespace manyworlds_tests
