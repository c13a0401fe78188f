// Host backend: moves host memory of one world, over a stream or shared memory per
// peer.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "backend/backend.hpp"
#include "io/reactor.hpp"
#include "link/data_channel.hpp"
#include "manyworlds/algorithms.hpp"

namespace manyworlds::inline v0::detail {

/// Holds the limits of one host backend. The members of a world must agree on the first
/// four: each member enforces them on the others.
struct host_backend_options {
  /// The largest message, head included, that is sent before a receive asks for it.
  std::size_t eager_limit = std::size_t{64} * 1024;
  /// The largest message that this member sends unasked through shared memory, if it
  /// finds chunks for it. Beyond the eager limit it has no effect.
  std::size_t unasked_in_memory = std::size_t{64} * 1024;
  /// Unreceived data of one lane, and of all peers together. Beyond it senders wait.
  std::size_t lane_window = std::size_t{256} * 1024;
  std::size_t world_window = std::size_t{4} * 1024 * 1024;
  /// The largest piece of a message that delays other lanes.
  std::size_t slice = std::size_t{256} * 1024;
  /// A begun transfer that moves no byte for this long breaks the world.
  duration stall_limit = std::chrono::seconds(10);
  /// How long a send that is given up late waits to learn whether it was taken.
  duration settle_limit = std::chrono::seconds(1);
  /// Ranks that do not enter a collective are logged; later they break the world.
  duration collective_log = std::chrono::seconds(5);
  duration collective_break = std::chrono::seconds(60);
  /// Whether all members live on one host. All members must have the same value.
  bool one_host = false;
  /// The id of this epoch of the world, which its members' pages must carry.
  std::uint64_t world_id = 0;
  /// Rules that precede the default ones; all members must have the same. Lifetime:
  /// must outlive the backend.
  std::span<const algorithm_rule> algorithms;
  /// A send that has waited this long for the window that all lanes share is logged,
  /// with the lanes that hold the window. Logged once a world.
  duration window_log = std::chrono::seconds(5);
  /// How many lanes of one peer are remembered as received on, and as discarded.
  std::size_t known_lanes = 65'536;
};

/// Moves host memory between the members of one world, over tcp streams or slots of
/// shared memory. Its wire format is in src/host/README.md.
///
/// Thread: the given reactor's alone.
///
/// An eager send is copied and ends at once. A larger one is read from the user's
/// memory into the receive's memory when a receive asks for it, and ends when the
/// receive has all of it. Operations are linked through their own hooks, and the
/// windows bound what is allocated.
///
/// Lifetime: `quiesce` or `leave` must have run its work before the backend is
/// destroyed, since requests in the engine refer to it. If `quiesce` is called during a
/// `leave`, both works run.
class host_backend final : public backend {
 public:
  /// Says that it takes slots of shared memory; otherwise every peer would need a
  /// stream.
  static constexpr bool uses_slots = true;

  /// Starts receiving. `connections[rank]` carries this backend's frames alone to and
  /// from that rank; the entry of `self` is closed.
  host_backend(reactor& r, backend_listener& events, host_backend_options options,
               rank_t self, std::vector<data_channel> connections);
  host_backend(reactor& r, backend_listener& events, host_backend_options options,
               rank_t self, std::vector<socket> streams);
  ~host_backend() override;

  void start(operation& op) noexcept override;
  [[nodiscard]] bool sends_to_many() const noexcept override { return true; }
  [[nodiscard]] bool try_at_once(operation& op) noexcept override;
  bool withdraw(operation& op) noexcept override;
  void discard(rank_t peer, lane on) noexcept override;
  void quiesce(work& quiet) noexcept override;
  void leave(work& gone, time_point deadline) noexcept override;

  /// Returns a count of what ended or announced sends to `peer` have queued.
  [[nodiscard]] std::uint64_t queued(rank_t peer) const noexcept;
  /// Returns whether all that such a count covers reaches the peer even if this thread
  /// does nothing more.
  [[nodiscard]] bool has_gone(rank_t peer, std::uint64_t queued) const noexcept;

  [[nodiscard]] std::vector<undelivered_messages> undelivered() const override;
  [[nodiscard]] std::vector<lane_status> lanes() const override;
  [[nodiscard]] std::optional<collective_status> collective() const override;
  [[nodiscard]] transfer_counters counters() const noexcept override;
  [[nodiscard]] const char* transport() const noexcept override;

 private:
  class state;
  std::unique_ptr<state> state_;
};

}  // namespace manyworlds::inline v0::detail
