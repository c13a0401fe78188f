// Failover coordinator: what follows when an instance has failed.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "mpmd/instance_regions.hpp"
#include "mpmd/job_context.hpp"

namespace manyworlds::inline v0::detail {

/// Decides by budgets, the smallest level first: the instance or its region is started
/// again, then the whole job, then the job ends. It changes the context and nothing else.
///
/// A failure is charged once, to the instance that failed (law G-e); those of its region
/// are victims. A region that recovers already takes in what fails in it meanwhile, which
/// starts with it. An instance that is lost with its node is not charged. Independent
/// regions recover side by side.
///
/// A failure by which a limit passed says how long it `takes`: so long no other one of
/// its kind can follow. It counts until one more than the budget allows could have
/// followed it, also where that is longer than the budget's window. So what fails by its
/// limit each time comes to the next level, and in the end to that of the job.
class failover_coordinator {
 public:
  failover_coordinator(job_context& job, const instance_regions& regions) noexcept
      : job_(job), regions_(regions) {}

  /// The incarnation of that instance has ended by itself: by a failure, or in order
  /// though its role is always started again. Or a limit has passed, which `takes` that
  /// long.
  void failed(std::size_t instance, recorded_time now, const std::string& why,
              duration takes = {});
  /// A worker of a session has ended in order, and its controller wants it.
  void worker_left(std::size_t worker, recorded_time now, const std::string& why);
  /// A worker that has ended is started again: its session's controller needs it.
  void bring_worker_back(std::size_t worker, recorded_time not_before);
  /// It is gone with its node, and is placed anew.
  void lost_with_node(std::size_t instance, recorded_time now);
  /// It could not be started where it was placed, and cannot be there: no try is made of
  /// that again. A job that runs goes on while enough of its role are left; otherwise it
  /// ends, and no other instance is started again for it.
  void cannot_start(std::size_t instance, const std::string& why);
  /// The whole job is started again, or ends if its budget is spent.
  void restart_job(recorded_time now, const std::string& why, duration takes = {});
  /// The job ends, with that exit code.
  void end_job(int exit_code, std::string why);

 private:
  /// Lets the region of an instance wait for its next start.
  void recover(std::size_t instance, recorded_time not_before);
  void bring_workers_back(std::size_t controller, recorded_time not_before);
  /// It is not started again. The job goes on while enough of its role are left.
  void give_up(std::size_t instance, recorded_time now, const std::string& why,
               duration takes);
  /// It is over, and so are those that restart with it: they were nothing without it.
  /// Returns whether the job goes on, since enough of all their roles are left.
  [[nodiscard]] bool end_region_of(std::size_t instance);
  [[nodiscard]] std::size_t left_of(std::size_t role) const;
  /// Returns which instance, where, and why, for people.
  [[nodiscard]] std::string told_of(std::size_t instance, const std::string& why) const;

  job_context& job_;
  const instance_regions& regions_;
};

inline constexpr recorded_time longest_pause = 5000;

/// Returns how many milliseconds pass between a failure and the next try: 50 after the
/// first, and twice as many after each further one, up to 5 s.
[[nodiscard]] recorded_time pause_after(std::size_t failures) noexcept;

}  // namespace manyworlds::inline v0::detail
