// Cases of several processes: the test's own process leads, and the others do their part
// until they are done, or are killed or stopped.
#pragma once

#include <doctest/doctest.h>
#include <signal.h>
#include <sys/wait.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "gpu_worlds.hpp"

namespace manyworlds::nccl_tests {

/// The other processes of a case, with numbers from 1 on. Each runs the same test case.
class other_processes {
 public:
  explicit other_processes(int count)
      : all_(static_cast<std::size_t>(count)), meeting_(rt_, "127.0.0.1:0") {}

  /// Starts the process of that number, in place of the one before. `part` is what
  /// `part_here()` gives there.
  void start(int number, const std::string& part = {}) {
    other& one = at(number);
    one.process = nullptr;
    const int processes = static_cast<int>(all_.size()) + 1;
    one.process =
        start_rank(number, processes, meeting_, {"MANYWORLDS_TEST_PART=" + part});
    one.is_killed = false;
  }
  void start_all() {
    for (int number = 1; number <= static_cast<int>(all_.size()); ++number) start(number);
  }

  /// Does not wait for its end.
  void kill(int number) {
    at(number).is_killed = true;
    send(number, SIGKILL);
  }
  /// Ends when it stands still.
  void stop(int number) {
    send(number, SIGSTOP);
    siginfo_t seen;
    const auto which = static_cast<id_t>(pid(number));
    REQUIRE(::waitid(P_PID, which, &seen, WSTOPPED | WEXITED | WNOWAIT) == 0);
  }
  void go_on(int number) { send(number, SIGCONT); }
  /// It kills itself, and is not expected to pass.
  void expect_death(int number) { at(number).is_killed = true; }

  [[nodiscard]] pid_t pid(int number) { return process(number).pid(); }
  /// The line that the process has as `line_in_process`.
  [[nodiscard]] int line(int number) { return process(number).line(); }
  [[nodiscard]] std::string store() const { return meeting_.address(); }

  /// Waits for the ends of all that were not killed, and checks that they passed.
  void check_ends() {
    for (std::size_t i = 0; i < all_.size(); ++i) {
      CAPTURE(i + 1);
      if (all_[i].process && !all_[i].is_killed) CHECK(all_[i].process->succeeded());
    }
  }

 private:
  struct other {
    std::unique_ptr<testing::own_process> process;
    bool is_killed = false;
  };

  other& at(int number) { return all_.at(static_cast<std::size_t>(number) - 1); }
  testing::own_process& process(int number) {
    REQUIRE((at(number).process != nullptr));
    return *at(number).process;
  }
  void send(int number, int signal) { ::kill(pid(number), signal); }

  std::vector<other> all_;
  runtime rt_;
  const hosted_store meeting_;
};

/// What this process was started for.
inline std::string part_here() { return setting("MANYWORLDS_TEST_PART", ""); }

/// Whether cases that are long by nature take as long as the acceptance list says.
inline bool takes_long() { return setting("MANYWORLDS_TEST_LONG", "0") != "0"; }

using leader_part = std::function<task<void>(member&, other_processes&)>;
using other_part = std::function<task<void>(member&)>;

/// Runs `lead` as member 0 in the test's own process and `follow` in each other one.
/// The process's number is the rank of its member. `lead` starts the others.
inline void run_processes(int others, const leader_part& lead, const other_part& follow) {
  if (testing::skips_without_device()) return;
  const auto here = rank_process::here();
  if (here) {
    const auto body = [&](member& m, const world_options&) { return follow(m); };
    return run_member(here->rank, body, {}, {}, nullptr, here->store);
  }
  other_processes all(others);
  const auto body = [&](member& m, const world_options&) { return lead(m, all); };
  run_member(0, body, {}, {}, nullptr, all.store());
  all.check_ends();
}

/// A world on this process's device. It takes one multiprocessor, so that a case may have
/// many of them.
inline world_options on_gpu(const member& m, const std::string& name, rank_t rank,
                            rank_t size) {
  world_options options;
  options.name = world_name(name);
  options.rank = rank;
  options.size = size;
  options.backend = backend_kind::nccl;
  options.device = m.device;
  options.on_device.most_multiprocessors = 1;
  return options;
}

/// The silence that breaks a world of these tests.
constexpr duration silence_limit = 1s;

inline world_options impatient(world_options options) {
  options.suspect_after = silence_limit / 3;
  options.broken_after = silence_limit;
  return options;
}

/// Tells all processes of the case that this one has got so far.
inline task<void> tell(member& m, std::string what) {
  co_await m.st.set("told " + what, "yes");
}
/// Waits until a process has told it.
inline task<void> told(member& m, std::string what) {
  (void)co_await m.st.get("told " + what, patience);
}

/// The failure that an operation ends with; says that nothing failed if it succeeds.
template <class Operation>
task<failure> failure_of(Operation operation) {
  const auto ended = co_await outcome(std::move(operation));
  co_return ended.error();
}

inline void check_success(const failure& why) {
  CAPTURE(why.text());
  CHECK(why.cause == cause::none);
}
inline void check_death(const failure& why, rank_t victim) {
  CAPTURE(why.text());
  CHECK(why.cause == cause::peer_died);
  CHECK(why.rank == victim);
}

}  // namespace manyworlds::nccl_tests
