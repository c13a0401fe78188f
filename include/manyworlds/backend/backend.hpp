// Backend: what moves the data of one world. The contract is shaped so that a GPU fits
// it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "manyworlds/backend/device_control.hpp"
#include "manyworlds/backend/operation.hpp"
#include "manyworlds/coro/timer_queue.hpp"
#include "manyworlds/coro/work.hpp"

namespace manyworlds::inline v0 {

/// What a backend tells its world. Called on the world's reactor.
class backend_events {
 public:
  /// A connection to a member ended unasked; `error` is the errno, 0 for an orderly end.
  virtual void connection_ended(rank_t peer, int error) noexcept = 0;
  /// The world must break: a peer violated the protocol, a transfer stalled, members
  /// disagree ...
  virtual void must_break(rank_t peer, enum cause why, std::string detail) noexcept = 0;
  /// A peer has left, and everything it had sent before is queued here; or it knows that
  /// we have. It may end from now on.
  virtual void peer_left(rank_t peer) noexcept = 0;
  /// Bytes came from a peer: a sign of life.
  virtual void heard(rank_t peer) noexcept = 0;
  /// A line for the log, about a state change (an overdue barrier names the absent
  /// ranks).
  virtual void remark(std::string line) noexcept = 0;
  /// The same about what went well.
  virtual void note(std::string) noexcept {}

 protected:
  ~backend_events() = default;
};

/// One lane in one direction, for dumps.
struct lane_status {
  rank_t peer = no_rank;
  lane on;
  std::uint64_t sent = 0;
  std::uint64_t received = 0;
  std::size_t waiting_sends = 0;
  std::size_t waiting_receives = 0;
  std::size_t unexpected_messages = 0;
  std::size_t unexpected_bytes = 0;
  /// What its first send waits for.
  send_obstacle waits_for = send_obstacle::none;
  /// Of the peer's window, by what was sent and is not received there yet.
  std::size_t window_at_peer = 0;
  /// Of our window, by what has come and was not received; how long the oldest of it has
  /// been here.
  std::size_t window_held = 0;
  duration held_for{0};
};

/// The collective that a member is in, for dumps.
struct collective_status {
  operation_kind kind = operation_kind::none;
  std::uint64_t number = 0;
  duration waited{0};
  /// The members were asked how far they are: until then `absent` is not known.
  bool is_known = false;
  /// Ranks that have not entered it.
  std::vector<rank_t> absent;
};

struct transfer_counters {
  std::uint64_t messages_sent = 0;
  std::uint64_t messages_received = 0;
  std::uint64_t bytes_sent = 0;
  std::uint64_t bytes_received = 0;
};

/// Moves the data of one formed world. All calls on the world's reactor. Operations of
/// one peer and lane take effect in the order they are started (law 5).
class backend {
 public:
  backend() = default;
  backend(const backend&) = delete;
  backend& operator=(const backend&) = delete;
  virtual ~backend() = default;

  /// Begins an operation whose arguments were checked. It ends exactly once, perhaps
  /// before this returns; never after `quiesce` was called.
  virtual void start(operation& op) noexcept = 0;

  /// The caller gives up (law 10). True: withdrawn now, the operation will not be ended
  /// and nothing touches its buffers (law 4). False: it will end soon, as withdrawn, or
  /// as done if it had taken effect. An entered collective answers false and goes on.
  virtual bool withdraw(operation& op) noexcept = 0;

  /// No more is received on this lane of `peer` (`no_rank`: of all): what has come is
  /// dropped, and so is what comes until a receive names the lane again. Its senders that
  /// still wait end with `cancelled_by_peer`; receives that wait on it alone with
  /// `cancelled`; one that is taking a message goes on.
  virtual void discard(rank_t peer, lane on) noexcept = 0;

  /// The world is broken: stop touching every buffer, end no operation any more, close
  /// all connections; then run `quiet` on the reactor, perhaps much later. The world ends
  /// the operations then.
  virtual void quiesce(work& quiet) noexcept = 0;

  /// Quiet, but the memory of this operation may still be touched, and for how long
  /// nobody knows.
  [[nodiscard]] virtual bool has_lost_buffers(const operation&) const noexcept {
    return false;
  }

  /// Leaves in order: everything accepted is flushed, the peers are told, the connections
  /// are closed; then `gone` runs. By `deadline` at the latest. No operation is started
  /// afterwards; receives that wait are failed with `closed`.
  virtual void leave(work& gone, time_point deadline) noexcept = 0;

  /// What was accepted and not yet delivered, per peer and lane.
  [[nodiscard]] virtual std::vector<undelivered_messages> undelivered() const = 0;
  [[nodiscard]] virtual std::vector<lane_status> lanes() const = 0;
  [[nodiscard]] virtual transfer_counters counters() const noexcept = 0;
  /// The collective on host memory under way, if there is one.
  [[nodiscard]] virtual std::optional<collective_status> collective() const {
    return std::nullopt;
  }
  [[nodiscard]] virtual const char* transport() const noexcept = 0;
  /// Null if it has no device.
  [[nodiscard]] virtual device_control* device() noexcept { return nullptr; }
};

}  // namespace manyworlds::inline v0
