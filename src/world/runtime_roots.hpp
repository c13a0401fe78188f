// Runtime roots: the tasks of a runtime that nothing awaits, and their common end.
#pragma once

#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "manyworlds/detail/member_work.hpp"
#include "manyworlds/world/runtime.hpp"
#include "observe/report.hpp"

namespace manyworlds::inline v0 {

using namespace detail;

/// A runtime has two: for the user's tasks, and for those of the service thread.
class runtime::roots final {
 public:
  roots(runtime_core& core, reactor& home) noexcept : core_(core), home_(home) {}

  /// Lists a task and begins it. Thread: any.
  void add(const std::shared_ptr<started_base>& root);
  [[nodiscard]] bool empty() const;
  /// Cancels all tasks after `drain`. The earliest time of all calls counts. Thread:
  /// any.
  void cancel_after(duration drain);
  /// Thread: any.
  void report(runtime_report& to) const;
  /// Returns "3 tasks started at main.cpp:40 ..."; empty if there are none. Thread:
  /// any.
  [[nodiscard]] std::string describe() const;
  /// Logs what a task that is not listed here throws. Called before it begins.
  void tell_of(started_base& root) noexcept;
  /// Logs what tasks threw that has not been asked for. Thread: the home, or any when
  /// the home is no longer turned.
  void tell_errors() noexcept;
  /// Ends the wait for tasks that have not ended. Called when the home is no longer
  /// turned, or does not return from a task.
  void leave_behind() noexcept;
  /// Keeps what must be reachable as long as these tasks are: leak checkers look for
  /// it.
  void keep(std::shared_ptr<void> remains) noexcept { remains_ = std::move(remains); }

 private:
  struct failed_task {
    source_position where;
    std::string error;
    time_point when;
  };
  static constexpr std::size_t most_failed = 16;

  void begin_cancelling() noexcept;
  void cancel_all() noexcept;
  void ended(started_base& root) noexcept;
  void note_failed(started_base& root, std::shared_ptr<started_base> untold);
  void log_error(const started_base& root) const noexcept;

  runtime_core& core_;
  reactor& home_;
  mutable std::mutex mutex_;
  std::vector<std::shared_ptr<started_base>> running_;  // guarded by mutex_
  std::deque<failed_task> failed_;                      // guarded by mutex_
  /// Tasks that ended by an exception that nothing has asked for yet.
  std::vector<std::shared_ptr<started_base>> untold_;  // guarded by mutex_
  std::optional<time_point> deadline_;                 // guarded by mutex_
  bool is_cancelling_queued_ = false;                  // guarded by mutex_
  bool is_tell_timer_armed_ = false;                   // guarded by mutex_
  member_work<&roots::begin_cancelling> cancelling_{*this};
  member_timer<&roots::cancel_all> drain_timer_{*this};
  member_timer<&roots::tell_errors> tell_timer_{*this};
  std::shared_ptr<void> remains_;
};

}  // namespace manyworlds::inline v0
