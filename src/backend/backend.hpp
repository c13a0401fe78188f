// Backend: moves the data of one world. A GPU fits the contract too.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "backend/device_control.hpp"
#include "manyworlds/detail/operation.hpp"
#include "manyworlds/detail/work.hpp"
#include "manyworlds/observe/history.hpp"
#include "manyworlds/observe/log.hpp"
#include "manyworlds/time.hpp"

namespace manyworlds::inline v0::detail {

/// Receives what a backend tells its world. Thread: the world's reactor.
class backend_listener {
 public:
  /// A connection to a member ended unasked; `error` is the errno, 0 for an orderly
  /// end.
  virtual void connection_ended(rank_t peer, int error) noexcept = 0;
  /// The world must break: a peer violated the protocol, a transfer stalled, members
  /// disagree ...
  virtual void must_break(rank_t peer, enum cause why, std::string detail) noexcept = 0;
  /// A peer has left and everything that it sent before is queued here, or it knows
  /// that we have left. Its connection may end from now on.
  virtual void peer_left(rank_t peer) noexcept = 0;
  /// Bytes came from a peer: a sign of life.
  virtual void heard(rank_t peer) noexcept = 0;
  /// Logs a change of state: as a warning if it is trouble (an overdue barrier names the
  /// absent ranks), else as an information.
  virtual void log(log_level level, std::string line) noexcept = 0;

 protected:
  ~backend_listener() = default;
};

/// Describes one lane of one peer, for dumps.
struct lane_status {
  rank_t peer = no_rank;
  lane on;
  std::uint64_t sent = 0;
  std::uint64_t received = 0;
  std::size_t waiting_sends = 0;
  std::size_t waiting_receives = 0;
  std::size_t unexpected_messages = 0;
  std::size_t unexpected_bytes = 0;
  send_obstacle waits_for = send_obstacle::none;  ///< what its first send waits for
  std::size_t window_at_peer = 0;  ///< bytes sent that the peer has not received yet
  std::size_t window_held = 0;     ///< bytes that came and are not received here yet
  duration held_for{0};            ///< age of the oldest of them
};

/// Describes the collective that a member is in, for dumps.
struct collective_status {
  operation_kind kind = operation_kind::none;
  std::uint64_t number = 0;
  duration waited{0};
  /// False until the members have said how far they are: `absent` is not known yet.
  bool is_known = false;
  std::vector<rank_t> absent;  ///< ranks that have not entered it
};

/// Returns what an error and a log line say of the ranks that have not entered a
/// collective.
inline std::string waits_for(operation_kind kind, std::uint64_t number,
                             const std::vector<rank_t>& absent) {
  std::string text = std::string(name_of(kind)) + " " + std::to_string(number);
  const char* between = absent.size() == 1 ? " waits for rank " : " waits for ranks ";
  for (const rank_t rank : absent) {
    text += std::exchange(between, ", ") + std::to_string(rank);
  }
  return text;
}

/// Moves the data of one formed world. Operations of one peer and lane take effect in
/// the order they are started (law 5). Thread: the world's reactor, for all calls.
class backend {
 public:
  backend() = default;
  backend(const backend&) = delete;
  backend& operator=(const backend&) = delete;
  virtual ~backend() = default;

  /// Begins an operation. It ends exactly once, perhaps before this returns; never
  /// after `quiesce` was called. Precondition: its arguments were checked.
  virtual void start(operation& op) noexcept = 0;

  /// Does a send, a receive or an arrival that needs no wait. Returns whether it took
  /// effect, with `info` set for the latter two; if not, nothing has happened and the
  /// operation may be started. Precondition: its arguments were checked.
  [[nodiscard]] virtual bool try_at_once(operation&) noexcept { return false; }

  /// Returns whether a send may have several targets.
  [[nodiscard]] virtual bool sends_to_many() const noexcept { return false; }

  /// Gives an operation up (law 10). True: it is withdrawn, will not be ended, and
  /// nothing touches its buffers (law 4). False: it ends soon, as withdrawn, or as done
  /// if it had taken effect. An entered collective answers false and goes on.
  virtual bool withdraw(operation& op) noexcept = 0;

  /// Receives no more on this lane of `peer` (`no_rank`: of all peers). What has come
  /// is dropped, and so is what comes until a receive names the lane again. Senders
  /// that still wait end with `cancelled_by_peer`, receives that wait on this lane
  /// alone with `cancelled`. A receive that is taking a message goes on.
  virtual void discard(rank_t peer, lane on) noexcept = 0;

  /// Called once, when the world is broken. Stops touching every buffer, ends no
  /// operation from now on and closes all connections. Then runs `quiet` on the
  /// reactor, perhaps much later; the world ends the operations there.
  virtual void quiesce(work& quiet) noexcept = 0;

  /// True if the backend is quiet and the memory of this operation may still be
  /// touched, for an unknown time.
  [[nodiscard]] virtual bool has_lost_buffers(const operation&) const noexcept {
    return false;
  }

  /// Leaves in order, by `deadline` at the latest: flushes everything accepted, tells
  /// the peers, closes the connections, then runs `gone`. Receives that wait fail with
  /// `closed`. No operation is started afterwards.
  virtual void leave(work& gone, time_point deadline) noexcept = 0;

  /// Returns what was accepted and not yet delivered, per peer and lane.
  [[nodiscard]] virtual std::vector<undelivered_messages> undelivered() const = 0;
  [[nodiscard]] virtual std::vector<lane_status> lanes() const = 0;
  [[nodiscard]] virtual transfer_counters counters() const noexcept = 0;
  /// Returns the collective on host memory that is under way, if there is one.
  [[nodiscard]] virtual std::optional<collective_status> collective() const {
    return std::nullopt;
  }
  [[nodiscard]] virtual const char* transport() const noexcept = 0;
  /// Returns null if the backend has no device.
  [[nodiscard]] virtual device_control* device() noexcept { return nullptr; }
};

}  // namespace manyworlds::inline v0::detail
