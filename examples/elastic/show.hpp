// The show: a launch agent in this process starts this program as its workers. One of
// them is killed and another stopped; what the others notice is counted.
#pragma once

#include <fmt/format.h>
#include <signal.h>

#include <chrono>
#include <csignal>
#include <filesystem>
#include <manyworlds/launch.hpp>
#include <manyworlds/mw.hpp>
#include <memory>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "witness.hpp"

using namespace std::chrono_literals;

struct show_wishes {
  int workers = 4;
  double hang_timeout_s = 2;
  bool json = false;
};

inline double ms_of(mw::duration d) {
  return std::chrono::duration<double, std::milli>(d).count();
}

/// What is done to the workers, and what came of it.
class show {
 public:
  show(const show_wishes& w, mw::launch_agent& agent, witness& seen)
      : wishes_(w), agent_(agent), seen_(seen) {}

  mw::task<void> run() {
    co_await until("the worlds are up", [this] { return seen_.are_up(wishes_.workers); });
    const std::vector<pid_t> before = pids();
    const int killed = wishes_.workers / 2;
    kill_to_up_ = co_await hit(killed, SIGKILL, "kill -9");
    stop_to_up_ = co_await hit(killed - 1, SIGSTOP, "kill -STOP");
    const std::vector<pid_t> after = pids();
    for (std::size_t i = 0; i < before.size(); ++i)
      (before[i] == after[i] ? untouched_ : restarted_).push_back(static_cast<int>(i));
    is_over_ = true;
    seen_.end();
    agent_.end(SIGTERM);
  }

  [[nodiscard]] bool is_over() const noexcept { return is_over_; }
  /// Returns whether two were replaced, and the others lost nothing.
  [[nodiscard]] bool is_as_meant() const {
    return is_over_ && restarted_.size() == 2 && seen_.lost() == 0;
  }

  void print() const {
    if (wishes_.json) {
      const nlohmann::ordered_json all = {{"workers", wishes_.workers},
                                          {"restarted", restarted_},
                                          {"untouched", untouched_},
                                          {"lost", seen_.lost()},
                                          {"max_gap_ms", ms_of(seen_.longest_gap())},
                                          {"reform_ms", ms_of(kill_to_up_)},
                                          {"stopped_reform_ms", ms_of(stop_to_up_)}};
      fmt::print("{}\n", all.dump());
      return;
    }
    fmt::print(
        "replaced: {}; untouched: {}; in worlds without a fault: {} lost, longest gap "
        "{:.1f} ms; up again {:.0f} ms after the kill, {:.0f} ms after the stop\n",
        fmt::join(restarted_, ", "), fmt::join(untouched_, ", "), seen_.lost(),
        ms_of(seen_.longest_gap()), ms_of(kill_to_up_), ms_of(stop_to_up_));
  }

 private:
  /// Sends the signal to a worker, and returns after which time its worlds were up again.
  mw::task<mw::duration> hit(int rank, int signal, const char* what) {
    seen_.expect_fault(rank);
    co_await mw::sleep_for(1s);
    const pid_t pid = agent_.pid_of(rank);
    if (!wishes_.json) fmt::print(">> {} {}, rank {}\n", what, pid, rank);
    const auto since = std::chrono::steady_clock::now();
    ::kill(pid, signal);
    co_await until("they are up again", [this] { return seen_.are_up_again(); });
    const mw::duration took = std::chrono::steady_clock::now() - since;
    co_await mw::sleep_for(1s);  // what the others noticed is told meanwhile
    co_return took;
  }

  template <class Condition>
  mw::task<void> until(const char* what, Condition holds) {
    const auto limit = std::chrono::steady_clock::now() + 60s;
    while (!holds()) {
      if (std::chrono::steady_clock::now() > limit)
        throw std::runtime_error(fmt::format("a minute has gone before {}", what));
      co_await mw::sleep_for(1ms);
    }
  }

  [[nodiscard]] std::vector<pid_t> pids() const {
    std::vector<pid_t> all;
    for (int rank = 0; rank < wishes_.workers; ++rank) all.push_back(agent_.pid_of(rank));
    return all;
  }

  const show_wishes wishes_;
  mw::launch_agent& agent_;
  witness& seen_;
  std::vector<int> restarted_, untouched_;
  mw::duration kill_to_up_{}, stop_to_up_{};
  bool is_over_ = false;
};

/// Returns the job of the show: this program again, as its workers.
inline mw::launch_options job_of(const show_wishes& w, mw::process_guard& guard,
                                 witness& seen) {
  mw::launch_options job;
  job.program = std::filesystem::read_symlink("/proc/self/exe");
  job.workers = w.workers;
  job.scope = mw::restart_scope::worker;
  job.max_restarts = 10;
  job.grace = 5s;
  job.hang_timeout = std::chrono::duration_cast<mw::duration>(
      std::chrono::duration<double>(w.hang_timeout_s));
  job.guard = &guard;
  mw::register_job_sink("witness", [&seen](const mw::job_sink_place&) {
    return std::make_unique<witness_sink>(seen);
  });
  job.event_sink = "witness";
  if (w.json) {
    job.streams = [](int, int) { return mw::worker_streams{.output_to_console = false}; };
  } else {
    job.told = [](std::string_view line) { fmt::print("elastic: {}\n", line); };
  }
  return job;
}

/// Ends all with the first that ends: the show, the job, or a signal's arrival.
inline mw::task<int> run_all(mw::runtime& rt, const show_wishes& w,
                             mw::process_guard& guard,
                             mw::task<mw::received_signal> told) {
  witness seen;
  mw::launch_agent agent(rt, job_of(w, guard, seen));
  show s(w, agent, seen);
  mw::launch_result end;
  int signal = 0;
  const auto stop_when_told = [&]() -> mw::task<void> {
    const mw::received_signal came = co_await std::move(told);
    signal = came.number;
    agent.end(signal);
  };
  const auto all = [&](mw::scope& running) -> mw::task<void> {
    running.spawn(s.run());
    running.spawn(stop_when_told());
    end = co_await agent.run();
    running.cancel();
  };
  co_await mw::scope::run(all);
  if (!end.cause.empty()) fmt::print(stderr, "elastic: {}\n", end.cause);
  for (const mw::worker_failure& each : end.failures)
    fmt::print(stderr, "elastic: rank {}: {}\n", each.rank, each.reason.text());
  if (signal != 0) co_return 128 + signal;
  if (s.is_over()) s.print();
  co_return s.is_as_meant() ? 0 : 1;
}

inline int run_show(const show_wishes& w) {
  std::setvbuf(stdout, nullptr, _IOLBF, 0);
  mw::process_guard guard;  // before any thread
  auto told = mw::until_signal({SIGTERM, SIGINT});
  mw::runtime rt({.log_from = mw::log_level::error});
  return rt.run(run_all(rt, w, guard, std::move(told)));
}
