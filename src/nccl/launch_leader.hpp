// Launch leader: what rank 0 decides for its GPU world: which operation is launched when.
#pragma once

#include <deque>
#include <optional>
#include <string>
#include <vector>

#include "manyworlds/detail/timer_queue.hpp"
#include "nccl/collective_table.hpp"
#include "nccl/order_message.hpp"
#include "nccl/proposal_table.hpp"

namespace manyworlds::inline v0::detail::nccl {

/// Counts the members that have entered a collective and takes the requests of pairs.
/// In a world without places it tells those that launch an operation at once, in one
/// order. In a world with places it proposes the operation first, and tells its place
/// when all have promised one (launch_order.hpp). Operations wait here until the device
/// is open, and, with places, while the communicator's memory is away.
///
/// Thread: the world's reactor. It has no clock and no timer: its owner calls `tick`.
class launch_leader {
 public:
  class office {
   public:
    /// Sends to a member, or to this one; in the order of the calls.
    virtual void tell(rank_t whom, const order_message& message) = 0;
    virtual void accuse(rank_t whom, enum cause why, std::string detail) = 0;
    /// Returns whether an honest member can have promised this time.
    [[nodiscard]] virtual bool is_credible(std::uint64_t time) const = 0;

   protected:
    ~office() = default;
  };

  launch_leader(rank_t size, office& home);
  launch_leader(const launch_leader&) = delete;
  launch_leader& operator=(const launch_leader&) = delete;

  // What members say.
  void enter(rank_t who, std::uint64_t number, const collective_terms& terms,
             time_point now);
  void place_pair(rank_t receiver, const pair_request& request, time_point now);
  void hear_made(rank_t who, time_point now);
  void hear_promise(rank_t from, const promise_message& m, time_point now);

  /// Gives operations places from here on. Tells all members, once.
  void use_places();

  /// Notes that the peers are connected here: operations are placed from now on.
  void open(time_point now);
  /// Notes that they never will be, since a member has left: closes what waits for
  /// that.
  void give_up_opening();
  /// Notes that the member has left, and launches no more. If connecting was not told
  /// yet, nothing is connected from now on.
  void leave(rank_t who, time_point now);
  /// Notes that this member leaves: decides nothing further, and retracts what was
  /// proposed.
  void retire();
  /// Tells nothing further.
  void stop() noexcept { is_stopped_ = true; }

  /// Returns when `tick` is to be called next, if at all.
  [[nodiscard]] std::optional<time_point> due() const noexcept;
  /// Retracts what was not answered in time, and proposes anew what has rested.
  void tick(time_point now);

  /// Tells of the oldest operation that all have entered and that has no place yet, if
  /// it waits longer than `limit`.
  struct unplaced {
    rank_t silent = no_rank;
    duration since{0};
  };
  [[nodiscard]] std::optional<unplaced> oldest_unplaced(time_point now,
                                                        duration limit) const;
  [[nodiscard]] collective_table& collectives() noexcept { return collectives_; }

  /// More operations than these are not proposed at a time.
  static constexpr std::size_t most_proposed = 1024;
  static constexpr duration shortest_patience = std::chrono::milliseconds(10);
  static constexpr duration longest_patience = std::chrono::seconds(1);
  static constexpr duration longest_rest = std::chrono::milliseconds(100);

 private:
  struct order {
    members_concerned to;
    order_message text;
  };
  struct resting {
    placement what;
    time_point until;
  };

  void place(placement fresh, time_point now);
  void place_waiting(time_point now);
  /// Returns false if it must wait.
  [[nodiscard]] bool place_one(placement& next, time_point now);
  void propose(placement what, time_point now);
  [[nodiscard]] const resting* resting_of(
      const members_concerned& members) const noexcept;
  void rest(std::vector<proposal_table::proposal> retracted, time_point now);
  void close(const placement& what, rank_t left);
  [[nodiscard]] rank_t first_left() const noexcept;
  template <class Container, class Of>
  void close_all_of(Container& from, rank_t left, Of placement_of);
  [[nodiscard]] bool is_undecided() const noexcept {
    return !proposals_.empty() || !resting_.empty();
  }
  void learn(duration took, bool is_late) noexcept;
  void issue(members_concerned to, order_message text);
  void tell_orders();

  const rank_t size_;
  office& home_;
  collective_table collectives_;
  std::vector<bool> left_;
  std::vector<bool> made_;
  bool is_open_ = false;
  bool never_opens_ = false;
  bool is_connecting_ = false;  ///< that was told, or proposed
  bool uses_places_ = false;
  bool is_suspended_ = false;
  bool is_retired_ = false;
  bool is_stopped_ = false;

  std::deque<placement> waiting_;
  proposal_table proposals_;
  std::vector<resting> resting_;
  duration patience_ = shortest_patience;

  std::deque<order> orders_;
  bool is_issuing_ = false;
};

}  // namespace manyworlds::inline v0::detail::nccl
