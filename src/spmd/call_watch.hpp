// Call watch: says what the workers do in calls that last.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "manyworlds/coro/task.hpp"
#include "observe/reporter.hpp"

namespace manyworlds::inline v0::detail {

class session_core;
class worker_link;

/// Once a second it asks each worker that is at the same call as a second before what it
/// waits for there. A dump shows what was said last. A call without a limit of its own
/// that a worker is at for five seconds is named in the log, once.
///
/// Part of its session core. Thread: the reactor.
class call_watch {
 public:
  explicit call_watch(session_core& core) noexcept : core_(core) {}
  call_watch(const call_watch&) = delete;
  call_watch& operator=(const call_watch&) = delete;

  /// Lets dumps of its runtime tell of the session, until `hide`.
  void show();
  void hide() noexcept { shown_.reset(); }
  /// Looks once a second, until it is cancelled.
  [[nodiscard]] task<void> run();

 private:
  /// The call that a worker is at, and how many looks found it there.
  struct seen {
    std::uint64_t call = 0;
    int looks = 0;
  };

  void look();
  void look_at(worker_link& link, seen& last);
  /// Also asks the workers in calls, for the next report.
  [[nodiscard]] session_report report();

  session_core& core_;
  std::vector<seen> seen_;  ///< by worker
  std::shared_ptr<const reporter::session_source> shown_;
};

}  // namespace manyworlds::inline v0::detail
