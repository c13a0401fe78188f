// Faults: what is done to workers while they decode, and what came of it.
#pragma once

#include <signal.h>
#include <sys/types.h>

#include <array>
#include <chrono>
#include <csignal>
#include <manyworlds/mw.hpp>
#include <manyworlds/spmd.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

/// One fault that is meant to happen.
struct fault {
  const char* what = "";  ///< "killed", "threw", "stopped"
  int signal = 0;
  int worker = 0;
  int step = 0;  ///< the first at which it may happen
  std::optional<mw::time_point> sent = {};
  long long pid = 0;  ///< which process it was sent to
  bool is_named = false;
};

/// A step that has failed, and how it went on.
struct incident {
  int step = 0;
  int worker = -1;        ///< which the error names
  std::string what = {};  ///< empty: it was no fault of ours
  std::string error = {};
  std::optional<mw::duration> detected_after = {};
  std::optional<mw::duration> back_after = {};
  long long pid = 0;  ///< of the replacement
};

/// The faults of a run, one after the other.
class fault_plan {
 public:
  /// Plans none.
  fault_plan() = default;
  /// Kills a worker, lets one throw and stops one, at a quarter, half and three quarters
  /// of the steps.
  fault_plan(int workers, int steps)
      : faults_{{"killed", SIGKILL, 2 % workers, steps / 4},
                {"threw", SIGUSR1, 1 % workers, steps / 2},
                {"stopped", SIGSTOP, 3 % workers, 3 * steps / 4}} {}

  /// Hurts a worker if it is time, while the calls of a step are under way.
  mw::task<void> hurt(const mw::session& s, int step) {
    if (next_ == faults_.size() || step < faults_[next_].step) co_return;
    fault& f = faults_[next_];
    const auto pid = static_cast<pid_t>(s.describe(f.worker).pid);
    // It is lost otherwise, or it happens already: unless that process was lost before.
    if (pid == 0 || (f.sent && f.pid == pid)) co_return;
    f.sent = std::chrono::steady_clock::now();
    f.pid = pid;
    ::kill(pid, f.signal);
  }

  /// Explains a failure: says which fault it is, and after which time it was noticed.
  void explain(incident& i, mw::time_point noticed) {
    if (next_ == faults_.size()) return;
    fault& f = faults_[next_];
    if (!f.sent || i.worker != f.worker) return;
    i.what = f.what;
    i.detected_after = noticed - *f.sent;
    f.is_named = true;
    ++next_;
  }

  /// Returns whether each fault has led to an error that names its worker.
  [[nodiscard]] bool all_named() const noexcept { return next_ == faults_.size(); }

 private:
  std::vector<fault> faults_;
  std::size_t next_ = 0;
};
