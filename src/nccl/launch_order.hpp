// Launch order: the one order in which all worlds of a process launch on a GPU.
//
// Kernels of different worlds share a GPU's hardware connections: what stands behind a
// kernel in a connection starts only when that kernel may start. Two GPUs that launch the
// kernels of two worlds in opposite orders therefore wait for each other without end. So
// the GPUs agree on one order of all operations that they have in common (Skeen's
// atomic multicast):
//
// - Each GPU has a logical clock. When all members have entered an operation, rank 0 of
//   its world proposes it to those that launch it. Each answers with a time later than
//   all that its GPU has seen, and holds a place at that time: a promise. The latest of
//   the promised times is the operation's, and rank 0 tells it to all of them: a
//   decision.
// - Each GPU launches what is earliest among all that it has promised or been told. It
//   passes no promise that may still be decided to come first. Equal times are ordered
//   by the world's number, which rank 0 draws at random, and by the proposal's.
// - A place is given up when its operation has been handed to CUDA, never at the end of a
//   kernel.
//
// Why no order of starts can wait in a circle. Let X be the earliest operation with a
// decided time that has not ended on all of its GPUs. On each of them all earlier
// operations have ended, so they hold no place and no connection. An undecided promise
// before X on one of them waits for answers only, and members answer without waiting for
// a launch or a kernel: it is decided or retracted in bounded time, and what is promised
// afterwards comes behind X, since the clock has seen X's time. So X becomes the first
// on each of its GPUs, is launched there, and finds in its connections only what came
// earlier and has ended, or what waits for that. All its kernels run, and it ends.
// Streams that an operation is ordered behind add waits for what was launched before it,
// which is earlier as well.
//
// - Connecting the peers of a communicator is such an operation. Its calls wait for the
//   peers' calls, and may wait for an idle GPU: nothing else is launched on a GPU from
//   its turn until its calls have returned. The argument does not change.
// - A world that is alone on its GPUs has no places. Its operations wait for nothing but
//   each other, in the one order of their rank 0. When another world comes onto one of
//   its GPUs, rank 0 hears of it and tells all members to use places from here on. The
//   world is orderly on a GPU when all that was launched there without a place has ended.
//   A newcomer uses places from its beginning, and connects on a GPU only when all other
//   worlds there are orderly. So an operation without a place never shares a GPU, at any
//   of its members, with a kernel of another world.
// - A world that breaks or leaves gives back its promises and places, and holds up
//   nothing. What it has launched is ended by the revocation of its communicator.
// - A promise stays undecided only as long as rank 0 waits for answers. It retracts a
//   proposal that is not answered soon, and proposes the operation anew later. A rank 0
//   that does neither has its world broken by the member that has promised.
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>

namespace manyworlds::inline v0::detail::nccl {

class launch_turn;

/// One GPU's order in this process. Thread-safe: runtimes may share the GPU. Worlds use
/// it through an `order_seat`.
class launch_order final : public std::enable_shared_from_this<launch_order> {
 public:
  using time = std::uint64_t;

  /// A time that is farther ahead of the clock than this is no honest member's.
  static constexpr time farthest = time{1} << 40;
  /// No clock gets there in honest steps; beyond it times could overflow.
  static constexpr time last = time{1} << 62;

  /// Returns the order of the device with this number, the same for all runtimes of the
  /// process.
  [[nodiscard]] static std::shared_ptr<launch_order> of(int ordinal);

 private:
  friend class order_seat;
  friend class launch_turn;

  /// Orders operations, the same way at all their members.
  struct rank_in_order {
    time at = 0;
    std::uint64_t world = 0;
    std::uint64_t number = 0;
    friend auto operator<=>(const rank_in_order&, const rank_in_order&) = default;
  };
  /// Two members of one world on one GPU have the same operations.
  struct place_key {
    rank_in_order operation;
    std::uint64_t seat = 0;
    friend auto operator<=>(const place_key&, const place_key&) = default;
  };
  struct place {
    bool is_decided = false;
    bool is_alone = false;  ///< nothing else is launched while its turn lasts
    bool is_told = false;   ///< its seat has heard that it has the turn
  };
  struct sitting {
    std::uint64_t world = 0;
    const void* lane = nullptr;
    std::function<void()> changed;
    bool is_orderly = false;
    std::map<std::uint64_t, rank_in_order> places;  ///< by number; not handed over yet
    std::map<std::uint64_t, rank_in_order> handed;
  };

  [[nodiscard]] bool is_credible(time at) const;
  [[nodiscard]] bool may_go(const place_key& key, const place& what) const;
  /// Tells the seats that have the turn now, except `own`: its caller looks itself.
  void tell_turns(std::uint64_t own = 0);
  void tell_others(std::uint64_t own);
  void give_up(std::uint64_t seat, std::uint64_t number);
  void leave(std::uint64_t seat);

  std::mutex mutex_;
  time clock_ = 0;
  std::uint64_t last_seat_ = 0;
  std::map<std::uint64_t, sitting> seats_;
  std::map<place_key, place> waiting_;
  /// What has the turn and is not launched yet: all of one lane, or of one operation.
  std::size_t handed_ = 0;
  const void* handed_lane_ = nullptr;
  rank_in_order last_handed_;
  bool is_held_alone_ = false;
};

/// Holds the right to launch one operation, until it is destroyed. Thread: any.
class launch_turn {
 public:
  launch_turn() = default;
  launch_turn(launch_turn&& other) noexcept = default;
  launch_turn& operator=(launch_turn&& other) noexcept {
    give_up();
    order_ = std::move(other.order_);
    seat_ = other.seat_;
    number_ = other.number_;
    return *this;
  }
  ~launch_turn() { give_up(); }

  /// Gives the right up: the operation has been handed to CUDA, or never will be.
  void give_up() noexcept {
    if (const auto order = std::move(order_)) order->give_up(seat_, number_);
  }

 private:
  friend class order_seat;
  launch_turn(std::shared_ptr<launch_order> order, std::uint64_t seat,
              std::uint64_t number) noexcept
      : order_(std::move(order)), seat_(seat), number_(number) {}

  std::shared_ptr<launch_order> order_;
  std::uint64_t seat_ = 0;
  std::uint64_t number_ = 0;
};

/// How connecting differs from other operations: nothing is launched beside it.
enum class launch_kind : std::uint8_t { operation, connecting };

/// Stands for a world's member on a GPU. What has a place is known by its proposal's
/// number, which is used once. Its end gives back all places, also those that have the
/// turn. Thread: the world's reactor.
class order_seat {
 public:
  /// One thread launches the operations of seats with the same lane, in the order in
  /// which they are taken, so that they need not wait for each other's launch; null is
  /// no lane. `changed` is called when a turn may have come, or another seat has
  /// changed. It runs on any thread, under the order's lock: it only wakes.
  order_seat(std::shared_ptr<launch_order> order, const void* lane,
             std::function<void()> changed);
  order_seat(const order_seat&) = delete;
  order_seat& operator=(const order_seat&) = delete;
  ~order_seat();

  /// Sets what rank 0 has drawn, equal for all members. Called before the first
  /// promise.
  void set_world(std::uint64_t world);

  /// Returns the number of members of worlds on this GPU, this one included.
  [[nodiscard]] std::size_t seats() const;
  [[nodiscard]] bool is_crowded() const { return seats() > 1; }
  /// Notes that all that this world has launched without a place has ended.
  void set_orderly();
  [[nodiscard]] bool are_others_orderly() const;

  /// Gives a time later than all that the GPU has seen.
  [[nodiscard]] launch_order::time promise(std::uint64_t number);
  enum class ruling : std::uint8_t { accepted, not_promised, too_early, too_far };
  [[nodiscard]] ruling decide(std::uint64_t number, launch_order::time at,
                              launch_kind kind);
  /// Forgets a proposal, as it is retracted.
  void forget(std::uint64_t number);
  /// Returns false if an honest member cannot have promised this time.
  [[nodiscard]] bool is_credible(launch_order::time at) const;

  /// Returns the operation of this seat that is to be launched now.
  [[nodiscard]] std::optional<std::uint64_t> next_turn() const;
  /// Precondition: it was given by `next_turn`, and nothing was called since.
  [[nodiscard]] launch_turn take(std::uint64_t number);

  /// Returns the number of places held now, for dumps.
  [[nodiscard]] std::size_t places() const;

 private:
  const std::shared_ptr<launch_order> order_;
  std::uint64_t id_ = 0;
};

}  // namespace manyworlds::inline v0::detail::nccl
