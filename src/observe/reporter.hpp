// Reporter: collects the contents of a runtime's dump.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "observe/inquiry.hpp"
#include "observe/report.hpp"

namespace manyworlds::inline v0::detail {

class runtime_core;
class world_core;

/// Returns what may be read of a world while its reactor is stuck. Thread: any.
[[nodiscard]] world_report report_on(const world_core& w, time_point now);
/// Returns what its backend knows. Thread: the world's reactor.
[[nodiscard]] transfer_report report_on_transfers(const world_core& w);

/// Belongs to its runtime core. Pending operations, worlds and members are read
/// directly, under mutexes that are held only briefly. What only a reactor may read is
/// asked of it, and is unknown if the reactor is stuck in user code.
class reporter {
 public:
  explicit reporter(runtime_core& rt);
  reporter(const reporter&) = delete;
  reporter& operator=(const reporter&) = delete;

  /// Returns the report. Waits at most a fifth of a second for the reactors. Thread:
  /// any.
  [[nodiscard]] runtime_report report();

  /// Lets reports tell of a job for as long as the source is there. The source owns what
  /// it asks: a report may be under way at its end. Thread: any.
  using job_source = std::function<job_report()>;
  void tell_of_job(std::weak_ptr<const job_source> ask);
  /// Likewise of a session, which is asked on the reactor. Thread: the reactor.
  using session_source = std::function<session_report()>;
  void tell_of_session(std::weak_ptr<const session_source> ask);

 private:
  using transfers = std::map<std::uint64_t, transfer_report>;
  struct service_part {
    std::vector<link_report> links;
    /// Whether a member has left, by world instance, then by rank.
    std::map<std::uint64_t, std::vector<bool>> left;
  };

  /// What only the reactor of users' tasks may read.
  struct user_part {
    transfers moved;
    std::vector<session_report> sessions;
  };

  static void add(const transfers& moved, world_report& to);
  static void add(const service_part& served, world_report& to);
  [[nodiscard]] user_part collect_user() const;
  [[nodiscard]] service_part collect_service() const;
  [[nodiscard]] std::vector<operation_report> recent_operations() const;

  runtime_core& core_;
  std::mutex mutex_;  ///< of the jobs
  std::vector<std::weak_ptr<const job_source>> jobs_;
  std::vector<std::weak_ptr<const session_source>> sessions_;
  const time_point since_;
  inquiry<user_part> user_;
  inquiry<service_part> service_;
};

}  // namespace manyworlds::inline v0::detail
