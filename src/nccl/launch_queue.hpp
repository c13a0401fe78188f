// Launch queue: operations from the moment when they may be launched until the stream is
// done with them.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "nccl/async_result.hpp"
#include "nccl/communicator.hpp"
#include "nccl/device_jobs.hpp"
#include "nccl/membership.hpp"

namespace manyworlds::inline v0::detail::nccl {

/// Hands operations to the launching thread in the order in which they come, except those
/// with a place on the GPU, which wait here for their turn. The stream ends them in that
/// order.
///
/// Thread: the world's reactor.
class launch_queue {
 public:
  class office {
   public:
    /// `see_launches` and `see_ends` are to be called in each turn until nothing is in
    /// flight.
    virtual void must_poll() noexcept = 0;
    /// Called when the communicator's memory was given back, or is there again.
    virtual void memory_has_changed() noexcept = 0;

   protected:
    ~office() = default;
  };

  launch_queue(membership& of, communicator& what, device_jobs& jobs, office& home)
      : member_(of), communicator_(what), jobs_(jobs), office_(home) {}
  launch_queue(const launch_queue&) = delete;
  launch_queue& operator=(const launch_queue&) = delete;
  ~launch_queue() { stop(); }

  /// Queues a job without a place: unmatched, in a world that is alone on its GPUs, or a
  /// change of the communicator's memory.
  void enqueue(device_job& job);
  /// Queues an unmatched job together with the rest of its group, if it is in one.
  void enqueue_unmatched(device_job& job);
  /// Keeps the job until `launch_held` is called with its number, which does nothing for
  /// a number that is not kept.
  void hold(std::uint64_t number, device_job& job);
  void launch_held(std::uint64_t number, launch_turn turn) noexcept;
  [[nodiscard]] bool has_held() const noexcept { return !held_.empty(); }
  /// Takes a job out. Precondition: it is queued and in no group.
  void withdraw(device_job& job) noexcept;
  /// Fails what is queued without a place.
  void fail_queued(const std::string& why);

  /// Launches what can be launched without a turn.
  void pump() noexcept;
  // Each tells whether there was anything new.
  bool see_launches() noexcept;
  bool see_ends() noexcept;
  /// Returns how long the reactor may sleep until one of them is called again.
  [[nodiscard]] duration longest_nap() const noexcept;
  /// Nothing wakes a sleeping reactor when a stream gets on: a host function on the
  /// stream would delay other streams. So it looks again after an eighth of the time it
  /// waits, but not sooner than this.
  static constexpr duration shortest_nap = std::chrono::microseconds(20);

  /// Ends `op` when the stream has reached its ticket.
  void settle(operation& op);
  void withdraw_settle(const operation& op) { std::erase(settling_, &op); }

  [[nodiscard]] bool has_placeless() const noexcept;
  /// Returns whether the communicator's memory is away, or will be.
  [[nodiscard]] bool is_memory_in_doubt() const noexcept;
  [[nodiscard]] bool is_memory_away() const noexcept { return memory_is_away_; }
  [[nodiscard]] bool is_in_flight() const noexcept { return !in_flight_.empty(); }
  /// Returns whether something is launched, or the communicator's memory is being
  /// changed.
  [[nodiscard]] bool is_busy() const noexcept { return is_in_flight() || changing_; }
  void add_to(device_status& status) const noexcept;
  void add_to(transfer_counters& counters) const noexcept;

  /// Drops the pending answer of a helper thread.
  void stop() noexcept;
  /// Breaks the world if the device, the communicator or what is launched does not go
  /// on. Called at least every `watch_period`.
  void watch(time_point now) noexcept;

 private:
  void launch(device_job& job);
  void change_memory(device_job& job);
  void memory_changed(ncclResult_t result) noexcept;
  void end_settled() noexcept;
  /// Returns true if the world breaks.
  [[nodiscard]] bool is_call_stuck(time_point now);
  void accuse_oldest(time_point now);

  membership& member_;
  communicator& communicator_;
  device_jobs& jobs_;
  office& office_;

  std::deque<device_job*> queue_;
  std::map<std::uint64_t, device_job*> held_;
  std::deque<device_job*> in_flight_;
  std::size_t launches_seen_ = 0;  ///< of those
  std::uint64_t handed_over_ = 0;
  std::uint64_t reached_ = 0;
  std::vector<operation*> settling_;

  /// A job for which the communicator's memory is being given back or taken.
  device_job* changing_ = nullptr;
  std::shared_ptr<async_result> change_;
  bool memory_is_away_ = false;  ///< from when that was done: nothing is launched

  std::uint64_t bytes_sent_ = 0;
  std::uint64_t bytes_received_ = 0;
  time_point last_end_{};
  duration blocked_before_{};
};

}  // namespace manyworlds::inline v0::detail::nccl
