#include "sender.hpp"

#include <utility>

namespace manyworlds::inline v0::host {

namespace {

// Copied and not yet in the kernel's hands: enough to fill a batch while one is sent.
constexpr std::size_t queue_limit = 64 * 1024;

}  // namespace

std::size_t sender::cost_of(const operation& op, bool eager) noexcept {
  return message_cost + op.head_bytes + (eager ? op.source.total_bytes() : 0);
}

bool sender::is_eager(const operation& op) const noexcept {
  return op.source.total_bytes() + op.head_bytes <= core_.options.eager_limit ||
         op.source.total_bytes() == 0;
}

bool sender::may_send(const outgoing_lane& l, const operation& op) const noexcept {
  const std::size_t cost = cost_of(op, is_eager(op));
  return batch_.queued_bytes() < queue_limit &&
         l.used_window + cost <= core_.options.lane_window &&
         used_window_ + cost <= core_.peer_window;
}

void sender::start(operation& op) {
  outgoing_lane& l = lanes_[op.on.number()];
  l.number = op.on.number();
  if (l.waiting.empty() && may_send(l, op)) return announce(l, op);
  l.waiting.push_back(op);
  ++waiting_;
  may_go_on_ = may_go_on_ || batch_.queued_bytes() >= queue_limit;
  if (!l.is_blocked) {
    l.is_blocked = true;
    blocked_.push_back(&l);
  }
}

void sender::announce(outgoing_lane& l, operation& op) {
  const bool eager = is_eager(op);
  const std::size_t payload = op.source.total_bytes();
  frame f;
  f.kind = eager ? frame_kind::eager : frame_kind::offer;
  f.type = op.source.type();
  f.head_bytes = static_cast<std::uint16_t>(op.head_bytes);
  f.generation = eager && op.delivered ? eager_wants_taken : 0;
  f.on = l.number;
  f.id = ++last_id_;
  f.word = op.user.value();
  f.bytes = payload;
  batch_.append(f);
  batch_.append({static_cast<const std::byte*>(op.head), op.head_bytes});

  const std::size_t cost = cost_of(op, eager);
  l.used_window += cost;
  used_window_ += cost;
  ++l.sent;
  ++core_.counters.messages_sent;
  const_view_cursor cursor(op.source);
  if (eager) {
    core_.counters.bytes_sent += payload + op.head_bytes;
    op.bytes_moved = payload + op.head_bytes;
    while (!cursor.at_end()) {
      const auto piece = cursor.front(payload);
      batch_.append(piece);
      cursor.advance(piece.size());
    }
    if (!op.delivered) {
      ++l.undelivered_messages;
      l.undelivered_bytes += payload + op.head_bytes;
      return op.end(operation_end::done);
    }
  }
  pending_send& p = pending_[f.id];
  p.id = f.id;
  p.op = &op;
  p.eager = eager;
  p.at = eager ? phase::sent : phase::offered;
  p.cursor = cursor;
  set_stage(op, stage::pending, &p);
}

void sender::send_waiting(outgoing_lane& l) {
  while (operation* op = l.waiting.front()) {
    if (!may_send(l, *op)) return;
    l.waiting.remove(*op);
    --waiting_;
    announce(l, *op);
  }
}

// Lanes take turns at being first, so that the one window they share starves none.
void sender::send_all_waiting() {
  may_go_on_ = false;
  for (std::size_t turns = blocked_.size(); turns > 0; --turns) {
    if (batch_.queued_bytes() >= queue_limit) {
      may_go_on_ = true;
      return;
    }
    outgoing_lane* l = blocked_.front();
    blocked_.pop_front();
    send_waiting(*l);
    l->is_blocked = !l->waiting.empty();
    if (l->is_blocked) blocked_.push_back(l);
  }
  // Who waits for room in the queue alone gets it when the batch is sent, without a
  // credit.
  may_go_on_ = !blocked_.empty() && batch_.queued_bytes() >= queue_limit;
}

bool sender::next_batch() {
  if (batch_.is_open()) return true;
  if (may_go_on_) send_all_waiting();
  if (active_.empty()) {
    batch_.open();
    return batch_.is_open();
  }
  pending_send& p = *active_.front();
  active_.pop_front();
  frame data;
  data.kind = frame_kind::data;
  data.id = p.id;
  data.generation = p.generation;
  data.word = p.op->source.total_bytes() - p.cursor.remaining();
  frame complete;
  complete.kind = frame_kind::complete;
  complete.id = p.id;
  complete.generation = p.generation;
  const std::size_t before = p.cursor.remaining();
  batch_.open_with_slice(data, p.cursor, core_.options.slice, complete);
  core_.counters.bytes_sent += before - p.cursor.remaining();
  p.op->bytes_moved += before - p.cursor.remaining();
  source_ = &p;
  if (p.cursor.at_end()) {
    p.at = phase::sent;
  } else {
    active_.push_back(&p);
  }
  return true;
}

void sender::sent(std::size_t count) {
  batch_.advance(count);
  if (!source_) return;
  pending_send& p = *source_;
  const bool gives_up = p.wanted == ending::withdrawn || p.wanted == ending::closed;
  if (gives_up && batch_.reads_user_memory()) {
    // The slice is filled up with zeros and never completed: nobody takes it for the
    // message.
    batch_.release_user_memory();
    p.at = phase::offered;
  }
  if (batch_.reads_user_memory()) return;
  source_ = nullptr;
  const ending how = std::exchange(p.wanted, ending::no);
  if (how == ending::taken || (gives_up && give_up(p, how))) finish(p, how);
}

}  // namespace manyworlds::inline v0::host
