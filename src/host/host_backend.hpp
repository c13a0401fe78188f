// Host backend: moves host memory of one world, over a stream or shared memory per
// peer.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "backend/backend.hpp"
#include "host/channel.hpp"
#include "host/collectives.hpp"
#include "host/core.hpp"
#include "host/fan_out_send.hpp"
#include "host/host_options.hpp"
#include "host/lane_matcher.hpp"
#include "io/reactor.hpp"
#include "link/data_channel.hpp"
#include "manyworlds/detail/assertion.hpp"
#include "manyworlds/detail/member_work.hpp"

namespace manyworlds::inline v0::detail {

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
class host_backend final : public backend, private host::match_listener {
 public:
  /// Says that it takes slots of shared memory; otherwise every peer would need a
  /// stream.
  static constexpr bool uses_slots = true;

  /// Starts receiving. `connections[rank]` carries this backend's frames alone to and
  /// from that rank; the entry of `self` is closed.
  host_backend(reactor& r, backend_listener& events, const host_backend_options& options,
               rank_t self, std::vector<data_channel> connections);
  host_backend(reactor& r, backend_listener& events, const host_backend_options& options,
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
  [[nodiscard]] std::optional<collective_status> collective() const override {
    return collectives_.status();
  }
  [[nodiscard]] transfer_counters counters() const noexcept override {
    return core_.counters;
  }
  [[nodiscard]] const char* transport() const noexcept override;

  // --- for its parts: what one of them asks of the others

  /// Arms the timer that checks stalled and settling transfers.
  void watch() noexcept;
  /// Arms the timer that returns credits and memory of channels that are silent.
  void tidy_soon() noexcept;
  /// The same at once, for what one channel's step has queued in another.
  void tidy_now() noexcept;
  /// Discards a lane in the midst of a step, as `discard` does between two.
  void discard_lane(rank_t peer, std::uint64_t number);
  /// Sends a frame without content.
  void tell(rank_t peer, const host::frame& f);
  [[nodiscard]] bool has_left(rank_t peer) const;
  /// Returns whether that member does not read what it is told.
  [[nodiscard]] bool is_backed_up(rank_t peer) const;
  /// Starts an operation that the backend has made itself: a message of a collective, or
  /// a part of a send to several members. `withdraw` gives it up.
  void start_part(operation& part) noexcept;
  /// Handles a frame about a collective. Returns null, or what is wrong with it.
  [[nodiscard]] const char* collective_frame(rank_t peer, const host::frame& f);
  /// Called when a message of a collective has come from that member.
  void note_collective_message(rank_t peer, std::uint64_t word) noexcept;
  /// Called when nothing more follows from that member.
  void peer_left(rank_t peer);
  /// Called when the peer knows that we have left, and may end.
  void peer_knows(rank_t peer);
  /// Called when no request of a channel is in flight, and none follows.
  void channel_rests() noexcept;

 private:
  [[nodiscard]] host::channel* to(rank_t peer) const {
    MW_ASSERT(peer >= 0 && peer < core_.size, "a peer is a member");
    return channels_[static_cast<std::size_t>(peer)].get();
  }
  template <class Visit>
  void for_each_channel(Visit&& visit) {
    for (auto& c : channels_) {
      if (c) visit(*c);
    }
  }
  template <class Step>
  void guarded(rank_t peer, Step&& step) noexcept;
  template <class Visit>
  void guarded_each(Visit&& visit) noexcept;

  void start_any(operation& op);
  void send(operation& op);
  void send_to_all(operation& op);
  [[nodiscard]] bool withdraw_any(operation& op);
  void begin_leave(work& gone, time_point deadline);
  void pump_touched() noexcept;

  // match_listener
  void pull(host::inbound_message& m) override;
  void consumed(host::inbound_message& m, bool was_received) override;
  void posted(const operation& op) override;
  void emptied(rank_t source, host::inbound_lane& l) override;

  void look() noexcept;
  void tidy() noexcept;
  void deadline_passed() noexcept;
  void finish_ending() noexcept;

  const host_backend_options options_;
  host::core core_;
  host::lane_matcher matcher_;
  host::collectives collectives_;
  std::vector<std::unique_ptr<host::channel>> channels_;
  rank_t shared_ = 0;  ///< the number of channels through shared memory
  host::fan_out_sends fan_outs_;
  host::channel* touched_ = nullptr;
  /// All other channels were touched as well.
  bool touched_all_ = false;
  member_timer<&host_backend::look> watch_{*this};
  member_timer<&host_backend::tidy> tidy_{*this};
  member_timer<&host_backend::deadline_passed> deadline_{*this};
  work* quiet_ = nullptr;
  work* gone_ = nullptr;
  time_point leave_deadline_{};
  bool left_ = false;
  bool abandoned_ = false;
};

}  // namespace manyworlds::inline v0::detail
