// Host backend: moves host memory of one world over one connected stream per peer.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "manyworlds/backend/backend.hpp"
#include "manyworlds/host/algorithms.hpp"
#include "manyworlds/io/reactor.hpp"
#include "manyworlds/link/data_channel.hpp"

namespace manyworlds::inline v0 {

/// The members of a world must agree on the first four: they are the limits each holds
/// the other to.
struct host_backend_options {
  /// Largest message, head included, that is sent before a receive asks for it.
  std::size_t eager_limit = std::size_t{64} * 1024;
  /// Unreceived data of one lane, and of all peers together; beyond it senders wait.
  std::size_t lane_window = std::size_t{256} * 1024;
  std::size_t world_window = std::size_t{4} * 1024 * 1024;
  /// Largest piece of a message that delays other lanes.
  std::size_t slice = std::size_t{256} * 1024;
  /// A begun transfer without a byte for so long breaks the world.
  duration stall_limit = std::chrono::seconds(10);
  /// How long a send that is given up late waits to hear whether it was taken.
  duration settle_limit = std::chrono::seconds(1);
  /// Ranks that do not enter a collective are logged, then break the world.
  duration collective_log = std::chrono::seconds(5);
  duration collective_break = std::chrono::seconds(60);
  /// Whether all members live on one host: the same for all of them.
  bool one_host = false;
  /// Come before the default ones, and are the same for all members. Must outlive the
  /// backend.
  std::span<const algorithm_rule> algorithms;
  /// A send that has waited for so long for the window that all lanes share is logged,
  /// once a world, with the lanes that hold it.
  duration window_log = std::chrono::seconds(5);
  /// Lanes of one peer that are remembered as received on, and as discarded.
  std::size_t known_lanes = 65'536;
};

/// The tcp transport. Runs on the given reactor's thread alone; its wire format is in
/// src/host/README.md.
///
/// Memory: an eager send is copied and ends at once; a larger one is read from the user's
/// memory when a receive asks for it, straight into that receive's memory, and ends when
/// the receive has all of it. Operations are linked through their own hooks; what is
/// allocated is bounded by the windows.
///
/// Ends: `quiesce` or `leave` must have run its work before the backend is destroyed,
/// since requests of the engine refer to it. If `quiesce` comes during a `leave`, the
/// works of both run.
class host_backend final : public backend {
 public:
  /// Whether it takes slots of shared memory; otherwise every way to a peer must be a
  /// stream.
  static constexpr bool uses_slots = true;

  /// `connections[rank]` is the way to that rank, on which nothing but this backend's
  /// frames follow; that of `self` is closed. Starts receiving.
  host_backend(reactor& r, backend_events& events, host_backend_options options,
               rank_t self, std::vector<data_channel> connections);
  host_backend(reactor& r, backend_events& events, host_backend_options options,
               rank_t self, std::vector<socket> streams);
  ~host_backend() override;

  void start(operation& op) noexcept override;
  bool withdraw(operation& op) noexcept override;
  void discard(rank_t peer, lane on) noexcept override;
  void quiesce(work& quiet) noexcept override;
  void leave(work& gone, time_point deadline) noexcept override;

  /// Counts what sends to `peer` that have ended, or were announced, have queued.
  [[nodiscard]] std::uint64_t queued(rank_t peer) const noexcept;
  /// Of such a count: all of it gets to the peer, also if this thread does nothing more.
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

}  // namespace manyworlds::inline v0
