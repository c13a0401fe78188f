// View queue: operations with views that CUDA is asked about, and those that must not
// overtake them.
#pragma once

#include <cstddef>
#include <deque>
#include <string>

#include "host/host_backend.hpp"
#include "manyworlds/detail/member_work.hpp"
#include "nccl/device_jobs.hpp"
#include "nccl/known_views.hpp"
#include "nccl/membership.hpp"

namespace manyworlds::inline v0::detail::nccl {

/// Views that CUDA has not been asked about yet are checked by the launching thread,
/// which may wait for the driver's locks. That is before the operation is announced:
/// found wrong only at its launch, it would break the world. Later operations of its lane
/// wait behind it (law 5), also those on host memory.
///
/// Thread: the world's reactor.
class view_queue {
 public:
  class office {
   public:
    /// Called when the views are right, and all that came before has gone on.
    virtual void go_on(device_job& job) = 0;
    /// `see_answers` is to be called in each turn until the queue is empty.
    virtual void must_poll() noexcept = 0;

   protected:
    ~office() = default;
  };

  view_queue(membership& of, device_jobs& jobs, host_backend& lanes, office& home)
      : member_(of), jobs_(jobs), lanes_(lanes), office_(home) {}
  view_queue(const view_queue&) = delete;
  view_queue& operator=(const view_queue&) = delete;
  ~view_queue() { member_.home.timers().disarm(timer_); }

  /// Returns what is wrong with the job's views as far as it is known without another
  /// thread; empty if nothing is.
  [[nodiscard]] std::string validate(device_job& job) const;
  /// Goes on with it now, or when its views are checked and nothing is in front of it.
  void pass(device_job& job);
  /// Returns whether an operation on host memory must wait behind what is checked.
  [[nodiscard]] bool must_hold(const operation& op) const noexcept;
  void hold(operation& op) { waiting_.push_back(&op); }

  [[nodiscard]] bool has(const operation& op) const noexcept;
  /// Returns true if it is over, false if it ends when CUDA has answered. Precondition:
  /// it is here.
  [[nodiscard]] bool withdraw(operation& op) noexcept;
  /// Discards a lane's operations, as the host backend does with the receives that are
  /// posted there.
  void discard(rank_t peer, lane on);
  void fail_all(const std::string& why);

  [[nodiscard]] bool empty() const noexcept { return waiting_.empty(); }
  [[nodiscard]] std::size_t size() const noexcept { return waiting_.size(); }
  /// Returns true if there was an answer.
  bool see_answers() noexcept;

  /// Returns false if the launching thread asks CUDA about one of them just now (law
  /// 4).
  [[nodiscard]] bool give_up() noexcept;
  /// Runs `quiet` when that thread asks about none of them, or after the time that
  /// quiescing may take.
  void quiesce(work& quiet) noexcept;

 private:
  void answered(device_job& job);
  /// Undoes what the operation has begun: here, in its group, and on its lane.
  void give_back(const operation& op) noexcept;
  void look_again() noexcept;

  membership& member_;
  device_jobs& jobs_;
  host_backend& lanes_;
  office& office_;
  std::deque<operation*> waiting_;
  known_views known_;
  work* quiet_ = nullptr;
  time_point quiet_by_{};
  member_timer<&view_queue::look_again> timer_{*this};
};

}  // namespace manyworlds::inline v0::detail::nccl
