#include "host/host_backend.hpp"

#include <unistd.h>

#include <algorithm>
#include <exception>
#include <iterator>
#include <utility>

#include "host/shm_channel.hpp"
#include "host/tcp_channel.hpp"
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

/// Counts the members that share this machine's CPUs, this one too. Where a link has no
/// slot left, a member of the same host has a stream as others do.
rank_t on_this_host(const std::vector<data_channel>& connections, bool one_host) {
  if (one_host) return static_cast<rank_t>(connections.size());
  return 1 + static_cast<rank_t>(
                 std::count_if(connections.begin(), connections.end(),
                               [](const data_channel& c) { return c.has_slot(); }));
}

}  // namespace

rank_t host::core::cpus_online() noexcept {
  static const auto online = static_cast<rank_t>(::sysconf(_SC_NPROCESSORS_ONLN));
  return online;
}

template <class Step>
void host_backend::guarded(rank_t peer, Step&& step) noexcept {
  try {
    step();
  } catch (const std::exception& e) {
    // A channel that stops may end a leave: that is no reason to hide why.
    const bool was_over = core_.stopping;
    for_each_channel([&](host::channel& c) {
      if (peer == no_rank || &c == to(peer)) c.carry_nothing_more();
    });
    if (!was_over) core_.events.must_break(peer, cause::out_of_resources, e.what());
  }
}

template <class Visit>
void host_backend::guarded_each(Visit&& visit) noexcept {
  for (rank_t peer = 0; peer < core_.size && !core_.stopping; ++peer) {
    if (host::channel* const c = to(peer)) guarded(peer, [&] { visit(*c); });
  }
}

host_backend::host_backend(reactor& r, backend_listener& events,
                           const host_backend_options& options, rank_t self,
                           std::vector<data_channel> connections)
    : options_(consistent(options)),
      core_(*this, r, events, options_, self, static_cast<rank_t>(connections.size()),
            on_this_host(connections, options_.one_host)),
      matcher_(core_.size, options_.known_lanes, *this),
      collectives_(core_) {
  core_.matcher = &matcher_;
  const std::size_t peers = std::max<std::size_t>(connections.size(), 2) - 1;
  core_.peer_window = std::max(options_.lane_window, options_.world_window / peers);
  channels_.resize(connections.size());
  for (rank_t peer = 0; peer < core_.size; ++peer) {
    const auto at = static_cast<std::size_t>(peer);
    if (peer == self || !connections[at].is_open()) continue;
    if (connections[at].has_slot()) {
      ++shared_;
      shm_slot slot = connections[at].take_slot();
      collectives_.add_link(peer, slot.link(), slot.index());
      channels_[at] = std::make_unique<host::shm_channel>(core_, peer, std::move(slot));
    } else {
      channels_[at] =
          std::make_unique<host::tcp_channel>(core_, peer, connections[at].take_stream());
    }
  }
  for_each_channel([](host::channel& c) { c.open(); });
}

host_backend::host_backend(reactor& r, backend_listener& events,
                           const host_backend_options& options, rank_t self,
                           std::vector<socket> streams)
    : host_backend(r, events, options, self,
                   std::vector<data_channel>(std::make_move_iterator(streams.begin()),
                                             std::make_move_iterator(streams.end()))) {}

host_backend::~host_backend() {
  core_.home.timers().disarm(watch_);
  core_.home.timers().disarm(tidy_);
  core_.home.timers().disarm(deadline_);
}

void host_backend::start(operation& op) noexcept {
  op.info = {};
  start_part(op);
}

void host_backend::start_part(operation& part) noexcept {
  guarded(part.peer, [&] { start_any(part); });
}

void host_backend::start_any(operation& op) {
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

void host_backend::send(operation& op) {
  host::channel* const c = to(op.peer);
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
void host_backend::send_to_all(operation& op) {
  host::fan_out_send* parts = nullptr;
  const auto send_to = [&](rank_t target) {
    host::channel* const c = to(target);
    if (c && !c->has_left() && c->try_send(op)) return;
    if (!parts) parts = &fan_outs_.emplace_back(fan_outs_, op, *this);
    parts->add(target);
  };
  for (const rank_t target : op.targets->ranks) send_to(target);
  if (op.targets->all_others) {
    for (rank_t target = 0; target < core_.size; ++target) {
      if (target != core_.self) send_to(target);
    }
  }
  op.bytes_moved = host::whole_bytes(op);
  parts ? parts->start() : op.end(operation_end::done);
}

bool host_backend::try_at_once(operation& op) noexcept {
  MW_ASSERT(is_message(op.kind) || op.kind == operation_kind::arrival,
            "only what is for one message may need no wait");
  bool is_done = false;
  guarded(op.peer, [&] {
    if (op.kind == operation_kind::send) {
      host::channel* const c = to(op.peer);
      is_done = c && c->try_send(op);
      if (is_done) op.bytes_moved = host::whole_bytes(op);
    } else {
      is_done = matcher_.try_take(op);
      if (is_done) pump_touched();
    }
  });
  return is_done;
}

bool host_backend::withdraw(operation& op) noexcept {
  bool at_once = false;
  guarded(op.peer, [&] { at_once = withdraw_any(op); });
  return at_once;
}

// Sends what the matcher's events have queued. They only queue answers: sending
// from within them would re-enter the matcher.
void host_backend::pump_touched() noexcept {
  host::channel* const c = std::exchange(touched_, nullptr);
  if (!c) return;
  c->pump();
  if (!std::exchange(touched_all_, false)) return;
  for_each_channel([](host::channel& each) { each.pump(); });
}

bool host_backend::withdraw_any(operation& op) {
  if (host::stage_of(op) == host::stage::fanned_out) {
    return static_cast<host::fan_out_send*>(op.backend.state)->withdraw();
  }
  if (op.kind == operation_kind::send) {
    host::channel& c = *to(op.peer);
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
      host::channel& c = *to(m.source);
      const bool at_once = c.receiving().withdraw(m);
      c.cancel_given_up();
      c.pump();
      return at_once;
    }
    default:
      return false;
  }
}

void host_backend::discard(rank_t peer, lane on) noexcept {
  if (core_.stopping) return;
  guarded(peer, [&] {
    discard_lane(peer, on.number());
    touched_ = nullptr;
    touched_all_ = false;
    for_each_channel([](host::channel& c) { c.pump(); });
  });
}

// Waiting receives end last: one may be followed by a receive on the same lane, which
// is for what comes from then on.
void host_backend::discard_lane(rank_t peer, std::uint64_t number) {
  for (rank_t from = 0; from < core_.size; ++from) {
    host::channel* const c = to(from);
    if (!c || (peer != no_rank && peer != from)) continue;
    matcher_.set_discarded(from, number);
    if (host::inbound_lane* l = matcher_.find_lane(from, number)) {
      c->receiving().discard(*l);
    }
    c->receiving().note_ready(number);
  }
  // These are answers of channels other than the one that runs this step.
  tidy_soon();
  for (rank_t from = 0; from < core_.size; ++from) {
    if (peer == no_rank || peer == from) matcher_.fail_discarded(from, number);
  }
  if (peer == no_rank) matcher_.fail_discarded(no_rank, number);
}

void host_backend::pull(host::inbound_message& m) {
  touched_ = to(m.source);
  touched_->receiving().pull(m);
}

void host_backend::consumed(host::inbound_message& m, bool was_received) {
  touched_ = to(m.source);
  touched_->receiving().consumed(m, was_received);
}

void host_backend::emptied(rank_t source, host::inbound_lane& l) {
  touched_ = to(source);
  touched_->receiving().note_ready(l.number);
}

void host_backend::posted(const operation& op) {
  for (rank_t peer = 0; peer < core_.size; ++peer) {
    host::channel* const c = to(peer);
    if (!c || (op.peer != no_rank && op.peer != peer)) continue;
    c->receiving().note_posted(op);
    touched_ = c;
  }
  touched_all_ = op.peer == no_rank;
  // In a step of one channel the others send nothing.
  if (touched_all_) tidy_soon();
}

void host_backend::tell(rank_t peer, const host::frame& f) {
  host::channel* c = to(peer);
  // Only answers follow a leave.
  if (!c || left_ || c->has_left()) return;
  c->sending().control(f);
  c->pump();
}

bool host_backend::has_left(rank_t peer) const {
  const host::channel* const c = to(peer);
  return !c || c->has_left();
}

const char* host_backend::collective_frame(rank_t peer, const host::frame& f) {
  return collectives_.handle(peer, f);
}

void host_backend::note_collective_message(rank_t peer, std::uint64_t word) noexcept {
  collectives_.note_message(peer, host::collective_signature(word));
}

void host_backend::peer_left(rank_t peer) {
  // Collectives first: a member that disagrees and leaves has not only left.
  collectives_.peer_left(peer);
  if (core_.stopping) return;
  matcher_.peer_left(peer);
  if (!core_.stopping) core_.events.peer_left(peer);
}

void host_backend::peer_knows(rank_t peer) {
  if (!core_.stopping) core_.events.peer_left(peer);
}

void host_backend::quiesce(work& quiet) noexcept {
  MW_ASSERT(!quiet_, "a world is quiesced once");
  quiet_ = &quiet;
  core_.stopping = true;
  collectives_.stop();
  core_.home.timers().disarm(watch_);
  core_.home.timers().disarm(tidy_);
  core_.home.timers().disarm(deadline_);
  for_each_channel([](host::channel& c) { c.stop(); });
  finish_ending();
}

void host_backend::leave(work& gone, time_point deadline) noexcept {
  guarded(no_rank, [&] { begin_leave(gone, deadline); });
  // Where all channels rest nothing else would, whatever was refused memory.
  finish_ending();
}

void host_backend::begin_leave(work& gone, time_point deadline) {
  MW_ASSERT(!gone_ && !left_, "a world is left once");
  gone_ = &gone;
  leave_deadline_ = deadline;
  // The last quarter is for telling the peers that we leave, without the messages
  // that were not taken by then.
  const duration left = std::max(deadline - core_.home.now(), duration(0));
  core_.home.timers().arm(deadline_, core_.home.now() + left / 4 * 3);
  collectives_.leave();
  if (core_.stopping) return;
  left_ = true;
  matcher_.fail_waiting(cause::closed, "this member has left");
  for_each_channel([](host::channel& c) { c.leave(); });
}

void host_backend::deadline_passed() noexcept {
  MW_ASSERT(core_.home.is_current() && gone_, "only a leave has a deadline");
  if (!abandoned_) {
    abandoned_ = true;
    core_.home.timers().arm(deadline_, std::max(leave_deadline_, core_.home.now()));
    guarded_each([](host::channel& c) { c.abandon_sends(); });
    return;
  }
  for_each_channel([](host::channel& c) { c.stop(); });
  finish_ending();
}

void host_backend::channel_rests() noexcept { finish_ending(); }

// Each work runs once, when no request of ours is left in the engine. It runs in the
// next turn, behind what the collectives have left there.
void host_backend::finish_ending() noexcept {
  if (!quiet_ && !gone_) return;
  for (const auto& c : channels_) {
    if (c && (c->is_open() || !c->at_rest())) return;
  }
  core_.home.timers().disarm(deadline_);
  core_.home.timers().disarm(watch_);
  core_.home.timers().disarm(tidy_);
  if (work* gone = std::exchange(gone_, nullptr)) {
    // The engine holds nothing more: what the deadline cut short ends too.
    if (!quiet_) guarded_each([](host::channel& c) { c.end_cut_short(); });
    core_.stopping = true;
    collectives_.stop();
    core_.home.schedule_next_turn(*gone);
  }
  if (work* quiet = std::exchange(quiet_, nullptr)) core_.home.schedule_next_turn(*quiet);
}

bool host_backend::is_backed_up(rank_t peer) const {
  host::channel* const c = to(peer);
  return c && c->sending().is_backed_up();
}

void host_backend::watch() noexcept {
  if (!watch_.is_armed() && !core_.stopping)
    core_.home.timers().arm(watch_, core_.home.now() + watch_period);
}

void host_backend::tidy_soon() noexcept {
  if (!tidy_.is_armed() && !core_.stopping)
    core_.home.timers().arm(tidy_, core_.home.now() + tidy_delay);
}

void host_backend::tidy_now() noexcept {
  if (!core_.stopping) core_.home.timers().arm(tidy_, core_.home.now());
}

void host_backend::look() noexcept {
  MW_ASSERT(core_.home.is_current(), "a timer expires in its reactor's turn");
  const time_point now = core_.home.now();
  const bool late = now - watch_.when() > late_by;
  bool again = false;
  guarded_each([&](host::channel& c) {
    c.look(now, late);
    if (core_.stopping) return;
    c.pump();
    again = again || c.must_watch();
  });
  if (again) watch();
}

void host_backend::tidy() noexcept {
  MW_ASSERT(core_.home.is_current(), "a timer expires in its reactor's turn");
  guarded_each([](host::channel& c) { c.tidy(); });
}

std::uint64_t host_backend::queued(rank_t peer) const noexcept {
  const host::channel* const c = to(peer);
  return c ? c->queued() : 0;
}

bool host_backend::has_gone(rank_t peer, std::uint64_t queued) const noexcept {
  const host::channel* const c = to(peer);
  return !c || c->has_gone(queued);
}

const char* host_backend::transport() const noexcept {
  if (shared_ == 0) return "tcp";
  return shared_ + 1 == core_.size ? "shm" : "shm and tcp";
}

std::vector<undelivered_messages> host_backend::undelivered() const {
  std::vector<undelivered_messages> all;
  for (rank_t peer = 0; peer < core_.size; ++peer) {
    if (!to(peer)) continue;
    to(peer)->sending().for_each_lane([&](const host::outgoing_lane& l) {
      // Only the user's lanes count.
      if (l.undelivered_messages == 0 || (l.number & lane::reserved)) return;
      all.push_back({peer, lane(l.number), l.undelivered_messages, l.undelivered_bytes});
    });
  }
  return all;
}

std::vector<lane_status> host_backend::lanes() const {
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
    if (l.first) status.held_for = core_.home.now() - l.first->came;
  });
  for (rank_t peer = 0; peer < core_.size; ++peer) {
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

}  // namespace manyworlds::inline v0::detail
