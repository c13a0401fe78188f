// Master seat: which master leads, so that the others wait beside it.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>

#include "manyworlds/coro/event.hpp"
#include "manyworlds/coro/task.hpp"
#include "manyworlds/store/etcd_store.hpp"
#include "mpmd/context_store.hpp"

namespace manyworlds::inline v0::detail {

/// The master that holds a seat.
struct seat_holder {
  std::string address;     ///< where it listens for standbys and agents
  std::int64_t claim = 0;  ///< of this taking; another taking has another

  friend bool operator==(const seat_holder&, const seat_holder&) = default;
};

/// Says which master leads. It only keeps masters from deposing each other: what fences
/// is the term, which a master takes from its context once it has the seat. So a seat
/// that is lost or freed wrongly is harmless. A holder that has lost it stops nothing,
/// and tries to take it again.
///
///     while (!co_await seat.take(own_address)) {
///       const std::optional<seat_holder> leader = co_await seat.holder();
///       if (leader && co_await watch(*leader) == leader_end::died)
///         co_await seat.free(*leader);
///       else if (leader) co_await seat.until_free(*leader);
///     }
///     const std::uint64_t term = co_await context.take_term(co_await context.term());
///
/// Thread: the runtime's reactor. Errors: context_error (`unreachable`, `unsupported`).
class master_seat {
 public:
  master_seat() = default;
  master_seat(const master_seat&) = delete;
  master_seat& operator=(const master_seat&) = delete;
  virtual ~master_seat() = default;

  /// Returns the master that holds the seat; nothing if it is free.
  virtual task<std::optional<seat_holder>> holder() = 0;
  /// Takes the seat under this address if it is free. Returns whether we hold it.
  /// Precondition: it was not taken, or is lost, or was left.
  virtual task<bool> take(std::string address) = 0;
  /// Waits until this taking of the seat has ended. While the store does not answer it
  /// waits on.
  virtual task<void> until_free(seat_holder of) = 0;
  /// Frees the seat of a holder that was seen to die, so that its lease need not end. If
  /// another has taken it meanwhile, nothing happens.
  virtual task<void> free(seat_holder dead) = 0;
  /// Waits until the seat that we took is no longer ours, and returns why.
  virtual task<std::string> lost() = 0;
  /// Gives the seat up. What was not taken is given up already.
  virtual task<void> leave() = 0;
  /// Returns whether it keeps masters apart: one that was deposed may stand by then, and
  /// must end otherwise.
  [[nodiscard]] virtual bool keeps_apart() const noexcept { return true; }
};

/// The seat where all masters run on the context's host. It is always free, and needs no
/// lease: a new master is started there once the old one is gone. If it is not, the term
/// that the new one takes fences it at its next write, and it ends.
class host_master_seat final : public master_seat {
 public:
  task<std::optional<seat_holder>> holder() override;
  task<bool> take(std::string address) override;
  task<void> until_free(seat_holder of) override;
  task<void> free(seat_holder dead) override;
  task<std::string> lost() override;
  task<void> leave() override;
  [[nodiscard]] bool keeps_apart() const noexcept override { return false; }

 private:
  event never_;
};

/// The seat as a key in etcd, made if it is absent, under a lease that this object keeps
/// alive. Lifetime: the store outlives it.
class etcd_master_seat final : public master_seat {
 public:
  /// etcd grants no lease under 2 s with its default timing.
  explicit etcd_master_seat(etcd_store& store, duration lease = std::chrono::seconds(5),
                            duration limit = std::chrono::seconds(5))
      : store_(store), lease_time_(lease), limit_(limit) {}

  task<std::optional<seat_holder>> holder() override;
  task<bool> take(std::string address) override;
  task<void> until_free(seat_holder of) override;
  task<void> free(seat_holder dead) override;
  task<std::string> lost() override;
  task<void> leave() override;

 private:
  task<bool> try_to_take(std::string address);
  task<std::string> until_taken();

  etcd_store& store_;
  const duration lease_time_;
  const duration limit_;
  std::optional<etcd_lease> lease_;
  std::optional<seat_holder> mine_;
};

}  // namespace manyworlds::inline v0::detail
