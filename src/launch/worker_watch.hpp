// Worker watch: what an agent knows of its living workers beyond their pidfds, and what
// follows from it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "io/descriptor.hpp"
#include "launch/file_timers.hpp"
#include "launch/hang_verdict.hpp"
#include "launch/process_pulse.hpp"
#include "launch/worker_reports.hpp"
#include "launch/worker_testimony.hpp"
#include "manyworlds/coro/event.hpp"
#include "manyworlds/coro/scope.hpp"
#include "manyworlds/coro/task.hpp"
#include "manyworlds/launch/launch_context.hpp"
#include "manyworlds/launch/supervised_process.hpp"

namespace manyworlds::inline v0::detail {

struct watch_options {
  /// From when on a worker that stands still is stuck; without it none is.
  std::optional<duration> hang_limit;
  /// The same of uninterruptible sleep alone.
  std::optional<duration> kernel_limit;
  /// From when on a replacement has failed, if the worlds of its rank are not up again.
  duration worlds_up_limit = std::chrono::seconds(30);
  /// This process's variables: those of PyTorch's file timers are among them.
  launch_variables inherited;

  /// Takes a line for people.
  std::function<void(const std::string& line)> told;
  /// The worker was replaced, and that has not mended its worlds, or the worker asks for
  /// more: what is next is a restart of all.
  std::function<void(int rank, const std::string& why)> unmended;
  /// Takes an event, a metric or a span of a worker.
  std::function<void(int rank, const worker_report& what)> reported;
  /// Takes the sentence on a worker that is stuck.
  std::function<void(const hang_verdict& verdict)> convicted;
  /// Takes what workers tell of those of other nodes, each time that it has changed.
  /// Without it, there are none.
  std::function<void(std::vector<worker_testimony> all)> testified;
};

/// One start of a worker.
struct watched_start {
  int rank = 0;
  int incarnation = 1;
  /// When the process failed that had the rank before, if one did.
  std::optional<time_point> failed;
  /// The files that take all of its output; empty where something else takes some.
  std::vector<std::string> output_files = {};
  /// The bytes that they had before the start.
  std::uintmax_t output_before = 0;
  /// Where its dump is written; empty for none.
  std::string folder = {};
};

/// Returns the bytes of all of them.
[[nodiscard]] std::uintmax_t size_of_files(const std::vector<std::string>& paths);

/// Watches the workers of one node: they report, overrun deadlines, get stuck, and get
/// their worlds back after a replacement.
///
/// Thread: the runtime's reactor. Lifetime: the runtime and what the options refer to
/// outlive it.
class worker_watch final : private worker_reports_listener {
 public:
  /// Where a socket or a pipe cannot be made, it says so and does without.
  worker_watch(runtime& rt, watch_options options);
  worker_watch(const worker_watch&) = delete;
  worker_watch& operator=(const worker_watch&) = delete;
  ~worker_watch();

  /// Returns what each worker finds in its environment.
  [[nodiscard]] launch_variables variables() const;
  /// Watches until it is cancelled.
  [[nodiscard]] task<void> run();
  /// Follows one process from its start on, tells of a replacement, and is cancelled when
  /// the process has ended. Lifetime: the process outlives it, until `ended`.
  [[nodiscard]] task<void> follow(supervised_process& process, watched_start start);
  /// The process that has the rank has ended.
  void ended(int rank);
  /// Takes what the workers of all other nodes tell by now.
  void hear(std::vector<worker_testimony> all);
  /// Has those ranks write their dumps, as far as they are this node's.
  [[nodiscard]] task<void> take_dumps(std::vector<int> of);

 private:
  struct followed {
    supervised_process* process = nullptr;
    watched_start start;
    pid_t pid = 0;
    process_pulse pulse;
    std::uintmax_t written = 0;
    bool has_written = false;
    time_point began{};
    time_point last_output{};
    bool is_convicted = false;
  };
  /// What the processes of a rank had that have ended: the epochs of their worlds, until
  /// those are up again.
  struct lost {
    bool has_come = false;
    /// The longest that one ran.
    duration ran{0};
    std::map<std::string, std::uint64_t, std::less<>> worlds;
  };

  // worker_reports_listener
  void world_changed(const worker_account& of, const world_news& news) override;
  void has_overrun(const worker_account& who, const std::string& what) override;
  void was_reported(const worker_account& by, const worker_report& what) override;

  [[nodiscard]] task<void> tell_replacement(followed now);
  [[nodiscard]] task<bool> until_up(int rank, const lost& before, time_point until);
  [[nodiscard]] bool are_up(int rank, const lost& before) const;
  void timer_expired(const file_timer_line& line);
  void kill_overrun(int rank, const std::string& what, int signal);

  [[nodiscard]] task<void> judge(scope& s);
  [[nodiscard]] duration limit() const noexcept {
    return options_.hang_limit.value_or(duration::max());
  }
  [[nodiscard]] hang_question question(bool was_late);
  [[nodiscard]] hang_witness witness(followed& f);
  [[nodiscard]] hang_witness far_witness(const worker_testimony& said) const;
  void testify(const hang_question& asked);
  [[nodiscard]] worker_testimony testimony_of(const worker_account& account) const;
  void add_reports(hang_witness& w, const worker_account& account) const;
  void look_at_output(followed& f);
  [[nodiscard]] task<void> carry_out(hang_verdict verdict);
  [[nodiscard]] task<bool> until_ended(int rank, pid_t pid, duration limit);
  [[nodiscard]] followed* find(int rank, pid_t pid) noexcept;

  reactor& home_;
  const watch_options options_;
  bool is_real_ = true;  ///< no simulation
  std::unique_ptr<worker_reports> reports_;
  std::unique_ptr<file_timers> timers_;
  std::map<int, followed> followed_;
  std::map<int, lost> lost_;
  std::set<int> named_;                  ///< ranks that report nothing
  std::vector<worker_testimony> told_;   ///< of this node's workers
  std::vector<worker_testimony> heard_;  ///< of those of other nodes
  event worlds_changed_;
  /// What happened before says nothing: this machine, or this process, was held up.
  time_point since_{};
};

}  // namespace manyworlds::inline v0::detail
