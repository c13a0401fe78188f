#include "sender.hpp"

#include <utility>

namespace manyworlds::inline v0::host {

std::size_t sender::cost_of(const operation& op) const noexcept {
  const bool kept = is_eager(op) || may_be_kept(op);
  return message_cost + op.head_bytes + (kept ? op.source.total_bytes() : 0);
}

bool sender::is_eager(const operation& op) const noexcept {
  // A description is small, or was refused before.
  return op.elsewhere || whole_bytes(op) <= eager_limit() || op.source.total_bytes() == 0;
}

bool sender::may_be_kept(const operation& op) const noexcept {
  return !op.delivered && whole_bytes(op) <= core_.options.eager_limit;
}

bool sender::has_window(const outgoing_lane& l, const operation& op) const noexcept {
  const std::size_t cost = cost_of(op);
  return l.used_window + cost <= core_.options.lane_window &&
         (core::is_own(l.number) || used_window_ + cost <= core_.peer_window);
}

void sender::start(operation& op) {
  outgoing_lane& l = lanes_.at(op.on.number());
  const bool needs_only_room = l.waiting.empty() && has_window(l, op);
  // Asked once: room that comes between two questions would be told to nobody.
  if (needs_only_room && !is_full()) return announce(l, op);
  l.waiting.push_back(op);
  ++waiting_;
  may_go_on_ = may_go_on_ || needs_only_room;
  if (!l.is_blocked) {
    l.is_blocked = true;
    blocked_.push_back(&l);
  }
}

void sender::announce(outgoing_lane& l, operation& op) {
  const bool eager = is_eager(op);
  const std::size_t whole = whole_bytes(op);
  frame f;
  f.kind = eager ? frame_kind::eager : frame_kind::offer;
  f.type = op.source.type();
  f.head_bytes = static_cast<std::uint16_t>(op.head_bytes);
  if (eager) {
    f.generation = op.delivered ? eager_wants_taken : 0;
    if (op.elsewhere) [[unlikely]]
      f.generation |= eager_elsewhere;
  } else {
    f.generation = may_be_kept(op) ? offer_may_be_kept : 0;
  }
  f.on = l.number;
  f.id = ++last_id_;
  f.word = op.user.value();
  f.bytes = op.source.total_bytes();
  pending_send* p = nullptr;
  if (!eager || op.delivered) {
    p = &pending_[f.id];
    p->id = f.id;
    p->op = &op;
    p->eager = eager;
    p->at = eager ? phase::sent : phase::offered;
    set_stage(op, stage::pending, p);
  }
  put(f, op, p);

  const std::size_t cost = cost_of(op);
  l.used_window += cost;
  if (!core::is_own(l.number)) used_window_ += cost;
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

bool sender::send_waiting(outgoing_lane& l) {
  while (operation* op = l.waiting.front()) {
    if (!has_window(l, *op)) return false;
    if (is_full()) return true;
    l.waiting.remove(*op);
    --waiting_;
    announce(l, *op);
  }
  return false;
}

// Lanes take turns at being first, so that the one window they share starves none.
void sender::send_all_waiting() {
  may_go_on_ = false;
  for (std::size_t turns = blocked_.size(); turns > 0; --turns) {
    if (is_full()) {
      may_go_on_ = true;
      return;
    }
    outgoing_lane* l = blocked_.front();
    blocked_.pop_front();
    // Who waits for room alone gets it without a credit.
    const bool wants_room = send_waiting(*l);
    l->is_blocked = !l->waiting.empty();
    if (l->is_blocked) blocked_.push_back(l);
    if (wants_room) {
      may_go_on_ = true;
      return;
    }
  }
}

}  // namespace manyworlds::inline v0::host
