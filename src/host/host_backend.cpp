#include "host/host_backend.hpp"

#include <iterator>
#include <utility>

#include "host/backend_state.hpp"

namespace manyworlds::inline v0::detail {

std::vector<undelivered_messages> host_backend::state::undelivered() const {
  std::vector<undelivered_messages> all;
  for (rank_t peer = 0; peer < size; ++peer) {
    if (!to(peer)) continue;
    to(peer)->sending().for_each_lane([&](const host::outgoing_lane& l) {
      // Only the user's lanes count.
      if (l.undelivered_messages == 0 || (l.number & lane::reserved)) return;
      all.push_back({peer, lane(l.number), l.undelivered_messages, l.undelivered_bytes});
    });
  }
  return all;
}

std::vector<lane_status> host_backend::state::lanes() const {
  std::vector<lane_status> all;
  const auto find = [&all](rank_t peer, std::uint64_t number) -> lane_status& {
    for (lane_status& known : all) {
      if (known.peer == peer && known.on.number() == number) return known;
    }
    lane_status& fresh = all.emplace_back();
    fresh.peer = peer;
    fresh.on = lane(number);
    return fresh;
  };
  matcher_.for_each_lane([&](rank_t peer, const host::inbound_lane& l) {
    lane_status& status = find(peer, l.number);
    status.received = l.received;
    status.waiting_receives = l.waiting.size();
    status.unexpected_messages = l.messages;
    for (const host::inbound_message* m = l.first; m; m = m->next) {
      status.unexpected_bytes += m->content.size();
    }
    status.window_held = l.held_bytes;
    if (l.first) status.held_for = home.now() - l.first->came;
  });
  for (rank_t peer = 0; peer < size; ++peer) {
    if (!to(peer)) continue;
    to(peer)->sending().for_each_lane([&](const host::outgoing_lane& l) {
      lane_status& status = find(peer, l.number);
      status.sent = l.sent;
      status.waiting_sends = l.waiting.size();
      status.window_at_peer = l.used_window;
      if (const operation* first = l.waiting.front()) status.waits_for = first->waits_for;
    });
  }
  return all;
}

host_backend::host_backend(reactor& r, backend_listener& events,
                           host_backend_options options, rank_t self,
                           std::vector<data_channel> connections)
    : state_(std::make_unique<state>(r, events, options, self, std::move(connections))) {}

host_backend::host_backend(reactor& r, backend_listener& events,
                           host_backend_options options, rank_t self,
                           std::vector<socket> streams)
    : host_backend(r, events, options, self,
                   std::vector<data_channel>(std::make_move_iterator(streams.begin()),
                                             std::make_move_iterator(streams.end()))) {}

host_backend::~host_backend() = default;

void host_backend::start(operation& op) noexcept {
  op.info = {};
  state_->guarded(op.peer, [&] { state_->start(op); });
}

bool host_backend::try_at_once(operation& op) noexcept {
  bool is_done = false;
  state_->guarded(op.peer, [&] { is_done = state_->try_at_once(op); });
  return is_done;
}

bool host_backend::withdraw(operation& op) noexcept {
  bool at_once = false;
  state_->guarded(op.peer, [&] { at_once = state_->withdraw(op); });
  return at_once;
}

void host_backend::discard(rank_t peer, lane on) noexcept {
  state_->guarded(peer, [&] { state_->discard(peer, on); });
}

void host_backend::quiesce(work& quiet) noexcept { state_->quiesce(quiet); }

void host_backend::leave(work& gone, time_point deadline) noexcept {
  state_->guarded(no_rank, [&] { state_->leave(gone, deadline); });
}

std::uint64_t host_backend::queued(rank_t peer) const noexcept {
  return state_->queued(peer);
}

bool host_backend::has_gone(rank_t peer, std::uint64_t queued) const noexcept {
  return state_->has_gone(peer, queued);
}

std::vector<undelivered_messages> host_backend::undelivered() const {
  return state_->undelivered();
}
std::vector<lane_status> host_backend::lanes() const { return state_->lanes(); }
std::optional<collective_status> host_backend::collective() const {
  return state_->collective();
}
const char* host_backend::transport() const noexcept { return state_->transport(); }
transfer_counters host_backend::counters() const noexcept { return state_->counters; }

}  // namespace manyworlds::inline v0::detail
