#include "host/sender.hpp"

#include <utility>

#include "manyworlds/detail/assertion.hpp"

namespace manyworlds::inline v0::detail::host {

namespace {

/// Returns the flags of an eager message, whether granted or not.
std::uint32_t eager_flags(const operation& op) noexcept {
  std::uint32_t flags = 0;
  if (op.gives_payload && op.source.total_bytes() == 0) flags |= eager_empty_payload;
  if (op.on_device) [[unlikely]]
    flags |= eager_on_device;
  return flags;
}

}  // namespace

std::size_t sender::cost_of(const operation& op) const noexcept {
  const bool kept = is_eager(op) || may_be_kept(op);
  return message_cost + op.head_bytes + (kept ? op.source.total_bytes() : 0);
}

bool sender::is_eager(const operation& op) const noexcept {
  // A description is small; larger ones were refused before.
  return op.on_device || whole_bytes(op) <= eager_limit() || op.source.total_bytes() == 0;
}

bool sender::may_be_kept(const operation& op) const noexcept {
  return !op.delivered && whole_bytes(op) <= core_.options.eager_limit;
}

send_obstacle sender::obstacle_to(const outgoing_lane& l, const operation& op) noexcept {
  const std::size_t cost = cost_of(op);
  if (l.used_window + cost > core_.options.lane_window) return send_obstacle::lane_window;
  const bool own = core::is_own(l.number);
  if (!own && used_window_ + cost > core_.peer_window) return send_obstacle::world_window;
  if (!is_eager(op) && !has_offer_room(own)) {
    wants_offer_room_ = true;
    return send_obstacle::world_window;
  }
  return is_full() ? send_obstacle::room : send_obstacle::none;
}

void sender::start(operation& op) {
  MW_ASSERT(op.kind == operation_kind::send, "a sender is given sends alone");
  MW_ASSERT(stage_of(op) == stage::none, "an operation is started once");
  outgoing_lane& l = lanes_.at(op.on.number());
  MW_ASSERT(l.is_blocked || (l.waiting.empty() && !l.granted),
            "a lane with sends that wait stands among the blocked ones");
  if (l.is_blocked) {
    op.waits_for = send_obstacle::earlier_sends;
    l.waiting.push_back(op);
    ++waiting_;
    return;
  }
  const send_obstacle obstacle = others_come_first() && !core::is_own(l.number)
                                     ? send_obstacle::room
                                     : obstacle_to(l, op);
  if (obstacle == send_obstacle::none) return announce(l, op);
  l.waiting.push_back(op);
  ++waiting_;
  l.is_blocked = true;
  blocked_.push_back(&l);
  note_obstacle(l, obstacle);
  may_go_on_ = may_go_on_ || obstacle == send_obstacle::room;
}

frame sender::announcement(const outgoing_lane& l, const operation& op, bool eager) {
  frame f;
  f.kind = eager ? frame_kind::eager : frame_kind::offer;
  f.type = op.source.type();
  f.head_bytes = static_cast<std::uint16_t>(op.head_bytes);
  f.on = l.number;
  f.id = ++last_id_;
  f.word = op.user.value();
  f.bytes = op.source.total_bytes();
  return f;
}

pending_send& sender::expect_end(const frame& f, operation& op) {
  pending_send& p = pending_[f.id];
  MW_ASSERT(!p.op && stage_of(op) == stage::none, "a send is announced once at a time");
  p.id = f.id;
  p.op = &op;
  p.eager = f.kind == frame_kind::eager;
  p.at = p.eager ? phase::sent : phase::offered;
  set_stage(op, stage::pending, &p);
  return p;
}

void sender::announce(outgoing_lane& l, operation& op) {
  const bool eager = is_eager(op) || (may_be_kept(op) && finds_room_unasked(op));
  const std::size_t whole = whole_bytes(op);
  frame f = announcement(l, op, eager);
  if (eager) {
    f.generation = eager_flags(op);
    if (op.delivered) f.generation |= eager_wants_taken;
  } else {
    f.generation = may_be_kept(op) ? offer_may_be_kept : 0;
  }
  pending_send* p = nullptr;
  if (!eager || op.delivered) p = &expect_end(f, op);
  put(f, op, p);

  const std::size_t cost = cost_of(op);
  l.used_window += cost;
  if (!core::is_own(l.number)) used_window_ += cost;
  MW_ASSERT(l.used_window <= core_.options.lane_window,
            "a send never takes more than its lane's window");
  MW_ASSERT(used_window_ <= core_.peer_window,
            "sends never take more than the window that all lanes share");
  ++l.sent;
  ++core_.counters.messages_sent;
  if (eager) {
    core_.counters.bytes_sent += whole;
    op.bytes_moved = whole;
  }
  if (p) return;
  ++l.undelivered_messages;
  l.undelivered_bytes += whole;
  op.end(operation_end::done);
}

// A payload behind a head stays at the sender, however small: a receiver that takes the
// head may never take the payload, and would have to keep it.
bool sender::is_eager_if_granted(const operation& op) const noexcept {
  const bool has_both = op.head_bytes > 0 && op.source.total_bytes() > 0;
  return is_eager(op) && (op.on_device || !has_both);
}

void sender::announce_granted(outgoing_lane& l, operation& op) {
  MW_ASSERT(!l.granted && !core::is_own(l.number),
            "a user's lane has at most one granted message");
  const bool eager = is_eager_if_granted(op);
  frame f = announcement(l, op, eager);
  if (eager) {
    f.generation = eager_flags(op) | eager_granted | eager_wants_taken;
  } else {
    f.generation = offer_granted;
  }
  pending_send& p = expect_end(f, op);
  p.granted = true;
  l.granted = &p;
  put(f, op, &p);
  ++l.sent;
  ++core_.counters.messages_sent;
  if (!eager) return;
  core_.counters.bytes_sent += whole_bytes(op);
  op.bytes_moved = whole_bytes(op);
}

operation& sender::take_first(outgoing_lane& l) {
  MW_ASSERT(waiting_ > 0 && !l.waiting.empty(),
            "a send that is taken from a lane was counted as waiting");
  operation& op = *l.waiting.pop_front();
  --waiting_;
  op.waits_for = send_obstacle::none;
  stop_wanting(l);
  return op;
}

void sender::note_obstacle(outgoing_lane& l, send_obstacle obstacle) {
  MW_ASSERT(l.is_blocked && !l.waiting.empty(), "only a send that waits has an obstacle");
  l.waiting.front()->waits_for = obstacle;
  if (obstacle != send_obstacle::world_window) return stop_wanting(l);
  if (!l.is_wanting) {
    l.is_wanting = true;
    l.wanting_since = core_.home.now();
    ++wanting_;
    core_.watch();
  }
  ask(l);
}

void sender::ask(outgoing_lane& l) {
  if (l.has_asked || core::is_own(l.number)) return;
  if (is_full()) {
    may_go_on_ = true;
    return;
  }
  l.has_asked = has_wanted_ = true;
  frame f;
  f.kind = frame_kind::want;
  f.on = l.number;
  control(f);
}

// The lane's next send has to ask anew: an answer to this one finds no wanting send.
void sender::stop_wanting(outgoing_lane& l) noexcept {
  l.has_asked = false;
  MW_ASSERT(!l.is_wanting || wanting_ > 0, "each wanting lane is counted once");
  if (std::exchange(l.is_wanting, false)) --wanting_;
}

// Not while most of the window is used: a lane would soon be wanting again.
void sender::relax() {
  if (!has_wanted_ || wanting_ > 0 || used_window_ > core_.peer_window / 2) return;
  has_wanted_ = false;
  frame f;
  f.kind = frame_kind::relaxed;
  control(f);
}

void sender::forget_if_idle(outgoing_lane& l) {
  const bool idle = l.used_window == 0 && l.waiting.empty() && !l.is_blocked &&
                    !l.is_ready && l.undelivered_messages == 0;
  MW_ASSERT(!idle || (!l.is_wanting && !l.granted), "an idle lane waits for nothing");
  if (idle && lanes_.size() > idle_lanes_kept) lanes_.erase(l.number);
}

bool sender::send_waiting(outgoing_lane& l) {
  while (operation* op = l.waiting.front()) {
    if (l.granted) {
      note_obstacle(l, send_obstacle::earlier_sends);
      return false;
    }
    const send_obstacle obstacle = obstacle_to(l, *op);
    if (obstacle != send_obstacle::none) {
      note_obstacle(l, obstacle);
      return obstacle == send_obstacle::room;
    }
    announce(l, take_first(l));
  }
  stop_wanting(l);
  return false;
}

// Granted messages need no window, so that no other lane can starve them.
void sender::send_ready() {
  while (!ready_.empty() && !is_full()) {
    outgoing_lane& l = *ready_.front();
    MW_ASSERT(l.is_ready, "a lane in the list of ready ones knows it");
    const bool wants = l.is_wanting && !l.granted && !l.waiting.empty();
    if (wants && !is_eager_if_granted(*l.waiting.front()) && !has_offer_room(true)) {
      wants_offer_room_ = ready_lacks_offer_ = true;
      return;
    }
    ready_.pop_front();
    l.is_ready = false;
    if (!wants) continue;
    announce_granted(l, take_first(l));
    // The peer asks again if it has another receive for fresh lanes.
    asks_left_ = 0;
  }
}

void sender::ask_again() {
  for (; asks_left_ > 0 && !is_full(); --asks_left_) {
    if (blocked_.empty()) {
      asks_left_ = 0;
      return;
    }
    outgoing_lane* l = blocked_.front();
    blocked_.pop_front();
    blocked_.push_back(l);
    MW_ASSERT(l->is_blocked, "a lane in the list of blocked ones knows it");
    if (!l->is_wanting) continue;
    l->has_asked = false;
    ask(*l);
  }
}

// Lanes take turns at being first, so that their shared window starves none.
void sender::send_all_waiting() {
  send_ready();
  ask_again();
  if (!may_go_on_) return;
  may_go_on_ = false;
  for (std::size_t turns = blocked_.size(); turns > 0; --turns) {
    if (is_full()) {
      may_go_on_ = true;
      return;
    }
    outgoing_lane* l = blocked_.front();
    blocked_.pop_front();
    MW_ASSERT(l->is_blocked, "a lane in the list of blocked ones knows it");
    // Room appears without a CREDIT frame: a lane blocked only on room must be retried
    // here.
    const bool wants_room = send_waiting(*l);
    l->is_blocked = !l->waiting.empty() || l->granted;
    if (l->is_blocked) {
      blocked_.push_back(l);
    } else {
      forget_if_idle(*l);
    }
    if (wants_room) {
      may_go_on_ = true;
      return;
    }
  }
  relax();
}

}  // namespace manyworlds::inline v0::detail::host
