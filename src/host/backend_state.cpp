#include "host/backend_state.hpp"

#include <algorithm>

#include "host/shared_connection.hpp"
#include "host/stream_connection.hpp"
#include "manyworlds/detail/assertion.hpp"

namespace manyworlds::inline v0::detail {

namespace {

// How often begun transfers are checked, and how long small credits wait for another
// frame.
constexpr duration watch_period = std::chrono::milliseconds(250);
constexpr duration tidy_delay = std::chrono::milliseconds(20);
constexpr duration late_by = std::chrono::seconds(1);

host_backend_options consistent(host_backend_options o) {
  constexpr std::size_t head = operation::largest_head;
  o.eager_limit = std::clamp(o.eager_limit, head, std::size_t{1} << 20);
  o.lane_window = std::max(o.lane_window, o.eager_limit + host::message_cost + head);
  // What is sent as zeros after a send is given up must fit the batch's entries
  // (outgoing_batch).
  o.slice = std::clamp(o.slice, head, std::size_t{1} << 21);
  return o;
}

}  // namespace

host_backend::state::state(reactor& r, backend_listener& told,
                           const host_backend_options& chosen, rank_t rank,
                           std::vector<data_channel> channels)
    : core(r, told, options_, rank, static_cast<rank_t>(channels.size())),
      options_(consistent(chosen)),
      matcher_(size, options_.known_lanes, *this),
      collectives_(*this, *this) {
  matcher = &matcher_;
  const std::size_t peers = std::max<std::size_t>(channels.size(), 2) - 1;
  peer_window = std::max(options_.lane_window, options_.world_window / peers);
  connections_.resize(channels.size());
  for (rank_t peer = 0; peer < size; ++peer) {
    const auto at = static_cast<std::size_t>(peer);
    if (peer == self || !channels[at].is_open()) continue;
    if (channels[at].has_slot()) {
      ++shared_;
      shm_slot slot = channels[at].take_slot();
      collectives_.add_link(peer, slot.link(), slot.index());
      connections_[at] =
          std::make_unique<host::shared_connection>(*this, *this, peer, std::move(slot));
    } else {
      connections_[at] = std::make_unique<host::stream_connection>(
          *this, *this, peer, channels[at].take_stream());
    }
  }
  for_each_connection([](host::connection& c) { c.open(); });
}

void host_backend::state::start(operation& op) {
  switch (op.kind) {
    case operation_kind::send:
      return op.targets ? send_to_all(op) : send(op);
    case operation_kind::receive:
    case operation_kind::arrival:
      matcher_.post(op);
      return pump_touched();
    default:
      if (op.kind >= operation_kind::barrier && op.kind <= operation_kind::all_to_all) {
        return collectives_.enter(op);
      }
      return op.fail(cause::invalid_argument,
                     "this operation moves no data in host memory");
  }
}

void host_backend::state::send(operation& op) {
  host::connection* const c = to(op.peer);
  if (!c || c->has_left()) {
    return op.fail(cause::closed, host::has_left_text(op.peer));
  }
  if (c->try_send(op)) {
    op.bytes_moved = host::whole_bytes(op);
    return op.end(operation_end::done);
  }
  c->sending().start(op);
  c->pump();
}

// What each member accepts at once costs no part of its own: mostly that is all.
void host_backend::state::send_to_all(operation& op) {
  host::fan_out_send* parts = nullptr;
  const auto send_to = [&](rank_t target) {
    host::connection* const c = to(target);
    if (c && !c->has_left() && c->try_send(op)) return;
    if (!parts) parts = &fan_outs_.emplace_back(fan_outs_, op, *this);
    parts->add(target);
  };
  for (const rank_t target : op.targets->ranks) send_to(target);
  if (op.targets->all_others) {
    for (rank_t target = 0; target < size; ++target) {
      if (target != self) send_to(target);
    }
  }
  op.bytes_moved = host::whole_bytes(op);
  parts ? parts->start() : op.end(operation_end::done);
}

bool host_backend::state::try_at_once(operation& op) {
  MW_ASSERT(is_message(op.kind), "only a message may need no wait");
  if (op.kind == operation_kind::send) {
    host::connection* const c = to(op.peer);
    if (!c || !c->try_send(op)) return false;
    op.bytes_moved = host::whole_bytes(op);
    return true;
  }
  if (!matcher_.try_take(op)) return false;
  pump_touched();
  return true;
}

bool host_backend::state::withdraw(operation& op) {
  if (host::stage_of(op) == host::stage::fanned_out) {
    return static_cast<host::fan_out_send*>(op.backend.state)->withdraw();
  }
  if (op.kind == operation_kind::send) {
    host::connection& c = *to(op.peer);
    const bool at_once = c.sending().withdraw(op);
    c.cancel_given_up();
    c.pump();
    return at_once;
  }
  switch (host::stage_of(op)) {
    case host::stage::queued:
      if (is_collective(op.kind)) return false;
      matcher_.unpost(op);
      if (op.discards && !op.takes_fresh_lanes) discard(op.peer, op.on);
      return true;
    case host::stage::taking: {
      auto& m = *static_cast<host::inbound_message*>(op.backend.state);
      MW_ASSERT(m.taker == &op, "a pulled message and its receive know each other");
      host::connection& c = *to(m.source);
      const bool at_once = c.receiving().withdraw(m);
      c.cancel_given_up();
      c.pump();
      return at_once;
    }
    default:
      return false;
  }
}

void host_backend::state::discard(rank_t peer, lane on) {
  if (stopping) return;
  discard_lane(peer, on.number());
  touched_ = nullptr;
  touched_all_ = false;
  for_each_connection([](host::connection& c) { c.pump(); });
}

// Waiting receives end last: one may be followed by a receive on the same lane, which
// is for what comes from then on.
void host_backend::state::discard_lane(rank_t peer, std::uint64_t number) {
  for (rank_t from = 0; from < size; ++from) {
    host::connection* const c = to(from);
    if (!c || (peer != no_rank && peer != from)) continue;
    matcher_.set_discarded(from, number);
    if (host::inbound_lane* l = matcher_.find_lane(from, number)) {
      c->receiving().discard(*l);
    }
    c->receiving().note_ready(number);
  }
  // These are answers of connections other than the one that runs this step.
  tidy_soon();
  for (rank_t from = 0; from < size; ++from) {
    if (peer == no_rank || peer == from) matcher_.fail_discarded(from, number);
  }
  if (peer == no_rank) matcher_.fail_discarded(no_rank, number);
}

void host_backend::state::posted(const operation& op) {
  for (rank_t peer = 0; peer < size; ++peer) {
    host::connection* const c = to(peer);
    if (!c || (op.peer != no_rank && op.peer != peer)) continue;
    c->receiving().note_posted(op);
    touched_ = c;
  }
  touched_all_ = op.peer == no_rank;
  // In a step of one connection the others send nothing.
  if (touched_all_) tidy_soon();
}

void host_backend::state::tell(rank_t peer, const host::frame& f) {
  host::connection* c = to(peer);
  // Only answers follow a leave.
  if (!c || left_ || c->has_left()) return;
  c->sending().control(f);
  c->pump();
}

void host_backend::state::peer_left(rank_t peer) {
  // Collectives first: a member that disagrees and leaves has not only left.
  collectives_.peer_left(peer);
  if (stopping) return;
  matcher_.peer_left(peer);
  if (!stopping) events.peer_left(peer);
}

void host_backend::state::peer_knows(rank_t peer) {
  if (!stopping) events.peer_left(peer);
}

void host_backend::state::quiesce(work& quiet) noexcept {
  MW_ASSERT(!quiet_, "a world is quiesced once");
  quiet_ = &quiet;
  stopping = true;
  collectives_.stop();
  home.timers().disarm(watch_);
  home.timers().disarm(tidy_);
  home.timers().disarm(deadline_);
  for_each_connection([](host::connection& c) { c.stop(); });
  finish_ending();
}

void host_backend::state::leave(work& gone, time_point deadline) {
  const std::string detail = "this member has left";
  MW_ASSERT(!gone_ && !left_, "a world is left once");
  gone_ = &gone;
  leave_deadline_ = deadline;
  collectives_.leave();
  if (stopping) return;
  left_ = true;
  matcher_.fail_waiting(cause::closed, detail);
  for_each_connection([](host::connection& c) { c.leave(); });
  // The last quarter is for telling the peers that we leave, without the messages that
  // were not taken by then.
  const duration left = std::max(deadline - home.now(), duration(0));
  home.timers().arm(deadline_, home.now() + left / 4 * 3);
  finish_ending();
}

void host_backend::state::deadline_passed() noexcept {
  MW_ASSERT(home.is_current() && left_, "only a leave has a deadline");
  if (!abandoned_) {
    abandoned_ = true;
    home.timers().arm(deadline_, std::max(leave_deadline_, home.now()));
    guarded(no_rank, [this] {
      for_each_connection([](host::connection& c) { c.abandon_sends(); });
    });
    return;
  }
  for_each_connection([](host::connection& c) { c.stop(); });
  finish_ending();
}

// Each work runs once, when no request of ours is left in the engine. It runs in the
// next turn, behind what the collectives have left there.
void host_backend::state::finish_ending() noexcept {
  if (!quiet_ && !gone_) return;
  for (const auto& c : connections_) {
    if (c && (c->is_open() || !c->at_rest())) return;
  }
  home.timers().disarm(deadline_);
  home.timers().disarm(watch_);
  home.timers().disarm(tidy_);
  if (work* gone = std::exchange(gone_, nullptr)) {
    // The engine holds nothing more: what the deadline cut short ends too.
    if (!quiet_) for_each_connection([](host::connection& c) { c.end_cut_short(); });
    stopping = true;
    collectives_.stop();
    home.schedule_next_turn(*gone);
  }
  if (work* quiet = std::exchange(quiet_, nullptr)) home.schedule_next_turn(*quiet);
}

void host_backend::state::watch() noexcept {
  if (!watch_.is_armed() && !stopping)
    home.timers().arm(watch_, home.now() + watch_period);
}

void host_backend::state::tidy_soon() noexcept {
  if (!tidy_.is_armed() && !stopping) home.timers().arm(tidy_, home.now() + tidy_delay);
}

void host_backend::state::look() noexcept {
  MW_ASSERT(home.is_current(), "a timer expires in its reactor's turn");
  const time_point now = home.now();
  const bool late = now - watch_.when() > late_by;
  bool again = false;
  for (auto& c : connections_) {
    if (!c || stopping) continue;
    guarded(no_rank, [&] { c->look(now, late); });
    if (stopping) return;
    c->pump();
    again = again || c->must_watch();
  }
  if (again) watch();
}

void host_backend::state::tidy() noexcept {
  MW_ASSERT(home.is_current(), "a timer expires in its reactor's turn");
  guarded(no_rank,
          [this] { for_each_connection([](host::connection& c) { c.tidy(); }); });
}

}  // namespace manyworlds::inline v0::detail
