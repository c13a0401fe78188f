// Member turns: a member's side of the common order of launches on its GPU
// (launch_order.hpp): promises, places and turns.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>

#include "nccl/communicator.hpp"
#include "nccl/launch_order.hpp"
#include "nccl/launch_queue.hpp"
#include "nccl/membership.hpp"
#include "nccl/order_mail.hpp"
#include "nccl/turn_wakeup.hpp"

namespace manyworlds::inline v0::detail::nccl {

/// Answers rank 0's proposals with promises, and launches what is decided when its turn
/// comes. A world of one member has no places.
///
/// Thread: the world's reactor.
class member_turns {
 public:
  member_turns(membership& of, communicator& what, order_mail& mail,
               launch_queue& launches)
      : member_(of), communicator_(what), mail_(mail), launches_(launches) {}
  member_turns(const member_turns&) = delete;
  member_turns& operator=(const member_turns&) = delete;
  /// Gives the seat back.
  ~member_turns() { stop(); }

  /// Called before the communicator is made. `changed` is run when a turn may have
  /// come, or another world on the GPU has changed: it calls `tell_changes` and
  /// `take_turns`.
  void start(std::function<void()> changed);
  /// Ensures that this world launches nothing further, and holds up no other on the
  /// GPU.
  void stop() noexcept;
  [[nodiscard]] bool has_seat() const noexcept { return seat_.has_value(); }
  /// Sets the number that rank 0 drew for the world. Precondition: nothing was promised.
  void set_world(std::uint64_t order) {
    if (seat_) seat_->set_world(order);
  }

  /// Tells rank 0, once each, that another world is on the GPU, and that the communicator
  /// is made and may connect: its first kernels start when no other world on its GPUs has
  /// any that were launched without a place.
  void tell_changes();
  /// Notes that the communicator is made but for connecting its peers.
  void note_made();
  /// Tells the GPU's other worlds, once, when all that was launched without a place has
  /// ended.
  void note_orderly();

  // What rank 0 says.
  void hear(const places_message& m);
  void hear(const propose_message& m);
  void hear(const retract_message& m);
  void hear(const connect_message& m);
  /// Queues a job that is matched, and has this place, unless its world has none.
  void enqueue(device_job& job, const launch_place& place);

  /// Says in the log, once, that an operation without an order, which begins, may wait
  /// for another world's without end. It does so where the GPU's worlds are more than
  /// its connections.
  void note_unordered();

  /// Promises what can be launched now.
  void answer_proposals();
  void take_turns() noexcept;
  /// Forgets what is promised and not decided. What is decided is launched all the
  /// same.
  void forget_promises();
  /// Notes that this member leaves in order: it promises nothing further.
  void retire();

  [[nodiscard]] bool is_credible(std::uint64_t time) const {
    return !seat_ || seat_->is_credible(time);
  }
  /// Returns whether rank 0 may still decide what was promised.
  [[nodiscard]] bool has_promised() const noexcept { return !undecided_.empty(); }
  /// Returns whether the peers connect, which needs all members.
  [[nodiscard]] bool may_connect() const noexcept { return may_connect_; }
  [[nodiscard]] bool connects_with_place() const noexcept {
    return may_connect_ && !connects_without_;
  }
  /// Returns whether the communicator waits because kernels of other worlds on the GPU
  /// do not end.
  [[nodiscard]] bool waits_for_others() const noexcept {
    return is_made_ && !is_made_known_;
  }
  [[nodiscard]] bool are_used() const noexcept { return are_used_; }
  [[nodiscard]] std::size_t held() const { return seat_ ? seat_->places() : 0; }

  /// Breaks the world of a rank 0 that decides nothing. Called every `watch_period`.
  void watch(time_point now) noexcept;

 private:
  [[nodiscard]] bool may_promise() const noexcept;
  void accept(const launch_place& place, launch_kind kind);
  void tell_crowd();
  void tell_made();

  membership& member_;
  communicator& communicator_;
  order_mail& mail_;
  launch_queue& launches_;
  /// None in a world of one member, and when the world has ended.
  std::optional<order_seat> seat_;
  std::shared_ptr<turn_wakeup> wakeup_;

  std::uint64_t last_proposal_ = 0;
  /// Proposals that this member cannot launch yet.
  std::deque<std::uint64_t> unanswered_;
  std::map<std::uint64_t, time_point> undecided_;  ///< promised, and since when
  std::uint64_t overdue_ = 0;                      ///< of those, found to be so once
  std::optional<std::uint64_t> connecting_;        ///< the place to connect the peers

  bool are_used_ = false;          ///< rank 0 has said so
  bool is_orderly_ = false;        ///< nothing launched without a place is left
  bool is_crowd_known_ = false;    ///< to rank 0
  bool is_made_ = false;           ///< but for connecting the peers
  bool is_made_known_ = false;     ///< to rank 0
  bool may_connect_ = false;       ///< rank 0 has said so
  bool connects_without_ = false;  ///< without a place
  bool is_retired_ = false;
  bool has_warned_ = false;
};

}  // namespace manyworlds::inline v0::detail::nccl
