#include "host/sender.hpp"

#include <algorithm>
#include <utility>
#include <vector>

#include "host/host_backend.hpp"
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
  const bool must_queue =
      is_cut_short_ || (others_come_first() && !core::is_own(l.number));
  const send_obstacle obstacle = must_queue ? send_obstacle::room : obstacle_to(l, op);
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
  if (eager) f.generation = eager_flags(op);
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
    f.generation |= eager_granted | eager_wants_taken;
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
    core_.backend.watch();
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

// How sends end: taken by the peer, given up here, or closed.

pending_send* sender::find(std::uint64_t id) {
  const auto found = pending_.find(id);
  return found == pending_.end() ? nullptr : &found->second;
}

void sender::stop_slices(pending_send& p) {
  std::erase(active_, &p);
  std::erase(helped_, &p);
}

const char* sender::on_pull(const frame& f) {
  if (f.id > last_id_) return "a pull of a message that was not sent";
  pending_send* p = find(f.id);
  if (!p) return nullptr;  // crossed its withdrawal
  if (p->eager || p->at != phase::offered || f.generation != p->generation + 1) {
    return "a pull out of turn";
  }
  p->generation = f.generation;
  // A slice of the pull before may still be on its way to the kernel, of a send that is
  // given up.
  if (p->wanted != ending::no) return nullptr;
  p->at = phase::pulled;
  p->cursor = const_view_cursor(p->op->source);
  p->op->begun = true;
  p->op->bytes_moved = 0;
  p->is_read_too = f.word == pull_reads_too;
  if (p->is_read_too) {
    helped_.push_back(p);
    return nullptr;
  }
  if (active_.empty()) active_since_ = core_.home.now();
  active_.push_back(p);
  core_.backend.watch();
  return nullptr;
}

const char* sender::on_unpull(const frame& f) {
  if (f.id > last_id_) return "an unpull of a message that was not sent";
  pending_send* p = find(f.id);
  if (!p) return nullptr;
  if (p->eager || p->generation != f.generation) return "an unpull out of turn";
  stop_slices(*p);
  if (p->at != phase::offered) p->op->begun = false;
  // Slices were sent for nothing: the next pull begins anew.
  p->op->bytes_moved = 0;
  p->at = phase::offered;
  return nullptr;
}

void sender::end_taken(pending_send& p) {
  // The peer's answer can overtake the end of the request that sent the last byte.
  if (is_in_use(p)) {
    p.wanted = ending::taken;
  } else {
    finish(p, ending::taken);
  }
}

const char* sender::on_taken(const frame& f) {
  if (f.id > last_id_) return "a message taken that was not sent";
  pending_send* p = find(f.id);
  if (!p) return nullptr;  // settled without waiting any longer
  if (p->at != phase::sent) {
    if (const char* wrong = check_taken(*p)) return wrong;
  }
  end_taken(*p);
  return nullptr;
}

const char* sender::on_accepted(const frame& f) {
  if (f.id > last_id_) return "a message accepted that was not sent";
  outgoing_lane* l = lanes_.find(f.on);
  if (!l) return "a message accepted on an unknown lane";
  pending_send* p = find(f.id);
  if (p) {
    const operation& op = *p->op;
    if (p->eager || !may_be_kept(op) || op.on.number() != f.on ||
        f.bytes > whole_bytes(op)) {
      return "a message accepted that it may not keep";
    }
    if (p->at != phase::sent) {
      if (const char* wrong = check_taken(*p)) return wrong;
    }
  }
  // This counts also for a send that was given up too late: its credit will come.
  ++l->undelivered_messages;
  l->undelivered_bytes += f.bytes;
  if (p) end_taken(*p);
  return nullptr;
}

const char* sender::on_withdrawn(const frame& f) {
  if (f.id > last_id_) return "an answer to a withdrawal that was not made";
  pending_send* p = find(f.id);
  if (!p) return nullptr;
  if (p->settle_by == time_point::max())
    return "an answer to a withdrawal that was not made";
  finish(*p, p->wanted);
  return nullptr;
}

const char* sender::on_credit(const frame& f) {
  outgoing_lane* found = lanes_.find(f.on);
  if (!found) return "credit for an unknown lane";
  outgoing_lane& l = *found;
  if (f.bytes > l.used_window || f.id > l.undelivered_messages ||
      f.word > l.undelivered_bytes) {
    return "more credit than was used";
  }
  may_go_on_ = true;
  l.used_window -= f.bytes;
  MW_ASSERT(core::is_own(f.on) || used_window_ >= f.bytes,
            "the shared window has all that lanes have taken of it");
  if (!core::is_own(f.on)) used_window_ -= f.bytes;
  l.undelivered_messages -= f.id;
  l.undelivered_bytes -= f.word;
  forget_if_idle(l);
  return nullptr;
}

const char* sender::on_ready(const frame& f) {
  if (f.generation == ready_for_fresh_lanes) {
    asks_left_ = blocked_.size();
    return nullptr;
  }
  // The receive is not remembered: a lane that wants later asks by itself.
  outgoing_lane* l = lanes_.find(f.on);
  if (!l || !l->is_wanting || std::exchange(l->is_ready, true)) return nullptr;
  ready_.push_back(l);
  return nullptr;
}

const char* sender::on_returned(const frame& f) {
  if (f.id > last_id_) return "a message returned that was not sent";
  pending_send* p = find(f.id);
  if (!p) return nullptr;  // crossed its withdrawal
  if (!p->granted) return "a message returned that was not granted";
  if (is_in_use(*p)) {
    if (p->wanted == ending::no) p->wanted = ending::returned;
    return nullptr;
  }
  if (!p->eager && !revoke(*p)) return "a message returned that it has taken";
  if (p->settle_by != time_point::max()) {
    finish(*p, p->wanted);
  } else {
    requeue(*p);
  }
  return nullptr;
}

void sender::requeue(pending_send& p) {
  MW_ASSERT(p.granted, "only a granted message comes back");
  operation& op = release(p);
  op.begun = false;
  op.bytes_moved = 0;
  outgoing_lane& l = *lanes_.find(op.on.number());
  MW_ASSERT(l.is_blocked && l.sent > 0, "a lane is blocked by its granted message");
  if (operation* next = l.waiting.front()) {
    next->waits_for = send_obstacle::earlier_sends;
  }
  stop_wanting(l);
  l.waiting.push_front(op);
  ++waiting_;
  --l.sent;
  --core_.counters.messages_sent;
}

const char* sender::on_discarded(const frame& f) {
  if (f.id > last_id_) return "a message dropped that was not sent";
  pending_send* p = find(f.id);
  if (!p) return nullptr;
  if (is_in_use(*p)) {
    if (p->wanted != ending::taken && p->wanted != ending::closed) {
      p->wanted = ending::discarded;
    }
    return nullptr;
  }
  if (!p->eager && !revoke(*p)) return "a message dropped that it has taken";
  const bool settles = p->settle_by != time_point::max();
  finish(*p, settles ? p->wanted : ending::discarded);
  return nullptr;
}

bool sender::withdraw(operation& op) {
  if (stage_of(op) == stage::queued) {
    outgoing_lane& l = *lanes_.find(op.on.number());
    MW_ASSERT(l.is_blocked && waiting_ > 0, "a lane of a send that waits is blocked");
    if (l.waiting.front() == &op) stop_wanting(l);
    l.waiting.remove(op);
    --waiting_;
    may_go_on_ = true;
    return true;
  }
  if (stage_of(op) != stage::pending) return false;
  pending_send& p = *static_cast<pending_send*>(op.backend.state);
  MW_ASSERT(p.op == &op, "a pending send and its operation know each other");
  if (p.wanted == ending::returned) {
    // It comes back as soon as the kernel lets go of it, and ends there.
    p.wanted = ending::withdrawn;
    return false;
  }
  if (p.wanted != ending::no || !give_up(p, ending::withdrawn)) return false;
  release(p);
  return true;
}

bool sender::give_up(pending_send& p, ending how) {
  stop_slices(p);
  if (is_in_use(p)) {
    // What the peer has taken is no longer given up.
    if (p.wanted != ending::taken) p.wanted = how;
    return false;
  }
  if (!p.eager && !revoke(p)) {
    p.wanted = ending::taken;
    return false;
  }
  frame f;
  f.kind = frame_kind::withdraw;
  f.id = p.id;
  control(f);
  if (p.at != phase::sent || how == ending::closed) return true;
  MW_ASSERT(p.settle_by == time_point::max(), "a send is settled once");
  // The peer may have all of it already, and says whether it does.
  p.wanted = how;
  p.settle_by = core_.home.now() + core_.options.settle_limit;
  ++settling_;
  core_.backend.watch();
  return false;
}

operation& sender::release(pending_send& p) {
  operation& op = *p.op;
  MW_ASSERT(stage_of(op) == stage::pending && op.backend.state == &p,
            "a pending send ends once (law 1)");
  MW_ASSERT(!is_in_use(p), "no send ends while the kernel reads its memory (law 4)");
  stop_slices(p);
  set_stage(op, stage::none, nullptr);
  MW_ASSERT(p.settle_by == time_point::max() || settling_ > 0,
            "each settling send is counted once");
  if (p.settle_by != time_point::max()) --settling_;
  forget(p);
  if (p.granted) [[unlikely]] {
    outgoing_lane& l = *lanes_.find(op.on.number());
    MW_ASSERT(l.granted == &p, "a lane knows its granted message until that ends");
    l.granted = nullptr;
    may_go_on_ = true;
  }
  pending_.erase(p.id);
  return op;
}

void sender::finish(pending_send& p, ending how) {
  operation& op = release(p);
  switch (how) {
    case ending::taken:
      return op.end(operation_end::done);
    case ending::closed:
      return op.fail(cause::closed, closed_detail_);
    case ending::discarded:
      return op.fail(cause::cancelled_by_peer, "rank " + std::to_string(op.peer) +
                                                   " takes no more on lane " +
                                                   std::to_string(op.on.number()));
    default:
      return op.end(operation_end::withdrawn);
  }
}

void sender::settle_overdue(time_point now) {
  std::vector<pending_send*> overdue;
  for (auto& entry : pending_) {
    if (entry.second.settle_by <= now) overdue.push_back(&entry.second);
  }
  for (pending_send* p : overdue) finish(*p, p->wanted);
}

// The lanes that hold most of the window are listed first.
void sender::log_waiting(time_point now) {
  if (!is_wanting()) return;
  const outgoing_lane* oldest = nullptr;
  std::vector<const outgoing_lane*> holders;
  lanes_.for_each([&](const outgoing_lane& l) {
    if (l.is_wanting && (!oldest || l.wanting_since < oldest->wanting_since)) oldest = &l;
    if (l.used_window > 0 && !core::is_own(l.number)) holders.push_back(&l);
  });
  if (!oldest || now - oldest->wanting_since < core_.options.window_log) return;
  core_.has_logged_window = true;
  const auto listed = std::min<std::size_t>(holders.size(), 4);
  std::partial_sort(holders.begin(),
                    holders.begin() + static_cast<std::ptrdiff_t>(listed), holders.end(),
                    [](const outgoing_lane* a, const outgoing_lane* b) {
                      return a->used_window > b->used_window;
                    });
  std::string lanes;
  for (std::size_t i = 0; i < listed; ++i) {
    lanes += (i == 0 ? " " : ", ") + std::to_string(holders[i]->number) + " (" +
             std::to_string(holders[i]->used_window) + " bytes)";
  }
  if (holders.size() > listed) {
    lanes += " and " + std::to_string(holders.size() - listed) + " more";
  }
  const auto waited =
      std::chrono::duration_cast<std::chrono::seconds>(now - oldest->wanting_since);
  const rank_t peer = oldest->waiting.front()->peer;
  core_.events.log(log_level::warning,
                   "a send to rank " + std::to_string(peer) + " on lane " +
                       std::to_string(oldest->number) + " has waited " +
                       std::to_string(waited.count()) +
                       " s for the window of the world: rank " + std::to_string(peer) +
                       " does not receive what it was sent on lane" +
                       (holders.size() == 1 ? "" : "s") + lanes +
                       "; usual cause: receives that were given up without discard()");
}

void sender::close(const std::string& detail) {
  closed_detail_ = detail;
  lanes_.for_each([&](outgoing_lane& l) {
    stop_wanting(l);
    l.waiting.fail_all(cause::closed, detail);
  });
  waiting_ = 0;
  asks_left_ = 0;
  std::vector<pending_send*> all;
  for (auto& entry : pending_) all.push_back(&entry.second);
  for (pending_send* p : all) {
    if (p->settle_by != time_point::max()) {
      finish(*p, p->wanted);
    } else if (give_up(*p, ending::closed)) {
      finish(*p, ending::closed);
    }
  }
}

}  // namespace manyworlds::inline v0::detail::host
