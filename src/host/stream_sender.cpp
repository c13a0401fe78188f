#include "host/stream_sender.hpp"

#include <utility>

#include "manyworlds/detail/assertion.hpp"

namespace manyworlds::inline v0::detail::host {

namespace {

// Copied and not yet in the kernel's hands: enough to fill a batch while one is sent.
constexpr std::size_t queue_limit = 64 * 1024;

}  // namespace

bool stream_sender::is_full() noexcept { return batch_.queued_bytes() >= queue_limit; }

void stream_sender::put(const frame& f, const operation& op, pending_send* p) {
  MW_ASSERT(op.head_bytes == 0 || op.head, "a head that has bytes lies somewhere");
  // All or nothing: without memory no frame stands there that others seem to belong to.
  batch_.reserve(frame_size + (f.kind == frame_kind::eager ? whole_bytes(op)
                                                           : std::size_t{op.head_bytes}));
  batch_.append(f);
  batch_.append({static_cast<const std::byte*>(op.head), op.head_bytes});
  const_view_cursor cursor(op.source);
  if (f.kind == frame_kind::eager) {
    while (!cursor.at_end()) {
      const auto piece = cursor.front(cursor.remaining());
      batch_.append(piece);
      cursor.advance(piece.size());
    }
  }
  if (p) p->cursor = cursor;
}

bool stream_sender::try_send(const operation& op) {
  const std::size_t bytes = whole_bytes(op);
  const std::size_t cost = message_cost + bytes;
  if (op.delivered || op.on_device || bytes > eager_limit() || is_full()) return false;
  outgoing_lane* const l = open_lane(op.on.number(), cost);
  if (!l) return false;
  put(announcement(*l, op, true), op, nullptr);
  note_accepted(*l, cost, bytes);
  return true;
}

bool stream_sender::next_batch() {
  if (batch_.is_open()) return true;
  if (may_send()) send_all_waiting();
  if (active_.empty()) {
    batch_.open();
    return batch_.is_open();
  }
  MW_ASSERT(!source_, "a batch refers to one send's memory");
  pending_send& p = *active_.front();
  MW_ASSERT(p.at == phase::pulled && !p.cursor.at_end(),
            "slices are sent of what is pulled");
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

void stream_sender::sent(std::size_t count) {
  batch_.advance(count);
  if (!source_) return;
  pending_send& p = *source_;
  MW_ASSERT(p.op && stage_of(*p.op) == stage::pending, "a send outlives its slice");
  const bool gives_up = p.wanted == ending::withdrawn || p.wanted == ending::closed ||
                        p.wanted == ending::discarded;
  if (gives_up && batch_.reads_user_memory()) {
    // The slice is filled with zeros and never completed, so that the peer does not
    // take it for the message.
    batch_.release_user_memory();
    p.at = phase::offered;
  }
  if (batch_.reads_user_memory()) return;
  source_ = nullptr;
  const ending how = std::exchange(p.wanted, ending::no);
  if (how == ending::returned) return requeue(p);
  if (how == ending::taken || (gives_up && give_up(p, how))) finish(p, how);
}

}  // namespace manyworlds::inline v0::detail::host
