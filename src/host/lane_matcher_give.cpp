// How a message meets the operation that was found for it.
#include <cstring>

#include "host/copy_past_caches.hpp"
#include "host/lane_matcher.hpp"
#include "manyworlds/detail/assertion.hpp"

namespace manyworlds::inline v0::detail::host {

namespace {

std::string two_sizes(std::size_t wanted, std::size_t sent, const char* what) {
  return "the receive is for " + std::to_string(wanted) + " bytes, but the message's " +
         what + " has " + std::to_string(sent) + "; it stays at the head of its lane";
}

/// Returns whether elements of one type may be received as those of the other. Bytes go
/// with all types, for a member that only passes them on; lists of several types go as
/// bytes.
bool goes_with(dtype room, dtype sent) noexcept {
  return room == sent || room == dtype::uint8 || sent == dtype::uint8;
}

/// Returns the first view of a receive that does not take the type sent. Looks
/// at each view only if the list has several types.
const_buffer_view unfit_view(const view_list& room, dtype sent) {
  if (!goes_with(room.type(), sent)) {
    for (std::size_t i = 0; i < room.size(); ++i) {
      if (!room[i].empty()) return room[i];
    }
  }
  if (room.size() < 2 || room.type() == sent || sent == dtype::uint8) return {};
  for (std::size_t i = 0; i < room.size(); ++i) {
    if (!room[i].empty() && !goes_with(room[i].type(), sent)) return room[i];
  }
  return {};
}

std::string two_types(dtype room, dtype sent) {
  return "the receive is for " + std::string(name_of(room)) + ", but the message has " +
         std::string(name_of(sent)) + "; it stays at the head of its lane";
}

/// Copies what has come of the message; `m.target` becomes the place of the rest.
void copy_content(operation& op, inbound_message& m) {
  m.target = view_cursor(op.target);
  copy_part(m.content.data(), m.content.size(), m.target, m.content.size());
}

}  // namespace

bool lane_matcher::try_take(operation& op) {
  if (op.peer == no_rank || op.takes_fresh_lanes || op.on_device || op.head_bytes > 0 ||
      op.target.size() != 1) {
    return false;
  }
  inbound_lane* const l = peer(op.peer).lanes.find(op.on.number());
  if (!l || !l->first || !l->is_known || l->is_discarded) return false;
  inbound_message& m = *l->first;
  if (m.is_being_brought() || m.offered || m.cancelled || m.on_device ||
      op.target.total_bytes() != m.total_bytes() ||
      (op.target.type() != m.type && !goes_with(op.target.type(), m.type))) {
    return false;
  }
  MW_ASSERT(l->waiting.empty(), "no receive waits on a lane that has a message for it");
  if (!m.content.empty()) {
    std::memcpy(op.target[0].data(), m.content.data(), m.content.size());
  }
  op.info = m.info(l->number);
  op.bytes_moved = m.total_bytes();
  consume(m, true);
  match(op.peer, *l);
  return true;
}

// Returns whether the message was consumed.
bool lane_matcher::give(operation& op, inbound_message& m) {
  MW_ASSERT(stage_of(op) == stage::none,
            "an operation that is given a message has left its queue");
  MW_ASSERT(!m.is_being_brought(), "a message is given to one receive at a time");
  if (op.kind == operation_kind::arrival) {
    op.info = m.info(m.on->number);
    op.end(operation_end::done);
    return false;
  }
  if (!m.on->is_known) set_known(m.source, m.on->number);
  if (m.cancelled) {
    const std::string source = "rank " + std::to_string(m.source);
    consume(m, false);
    op.fail(cause::cancelled_by_peer, source + " gave up the message after its head");
    return true;
  }
  if (op.head_bytes > 0) return give_head(op, m);
  if (op.on_device || m.on_device) [[unlikely]]
    return give_description(op, m);
  return give_whole(op, m);
}

bool lane_matcher::give_description(operation& op, inbound_message& m) {
  if (!op.on_device || !m.on_device) {
    op.fail(cause::memory_mismatch,
            m.on_device ? "the message lies in device memory: receive it there; it "
                          "stays at the head of its lane"
                        : "the message lies in host memory: receive it there; it "
                          "stays at the head of its lane");
    return false;
  }
  device_payload& room = *op.on_device;
  if (!room.takes_any) {
    const device_payload_prefix& sent = m.prefix;
    if (m.head_bytes > 0) {
      op.fail(cause::size_mismatch, two_sizes(0, m.head_bytes, "head"));
      return false;
    }
    if (room.bytes != sent.bytes) {
      op.fail(cause::size_mismatch, two_sizes(room.bytes, sent.bytes, "content"));
      return false;
    }
    if (!goes_with(room.type, sent.type)) {
      op.info = m.info(m.on->number);
      op.fail(cause::type_mismatch, two_types(room.type, sent.type));
      return false;
    }
  }
  room.description.assign(m.content.begin(), m.content.end());
  op.info = m.info(m.on->number);
  consume(m, true);
  op.end(operation_end::done);
  return true;
}

// A receiver that looks at the size does not receive a payload of no bytes; one that
// always receives does. Both then get the next head.
bool lane_matcher::pass_over(operation& op, inbound_message& m) {
  consume(m, true);
  find_message(op);
  return true;
}

bool lane_matcher::give_head(operation& op, inbound_message& m) {
  if (m.is_spent()) return pass_over(op, m);
  if (op.head_bytes != m.head_bytes) {
    op.fail(cause::size_mismatch, two_sizes(op.head_bytes, m.head_bytes, "head"));
    return false;
  }
  MW_ASSERT(op.head && m.content.size() >= m.head_bytes,
            "a head has come with its message");
  std::memcpy(op.head, m.content.data(), m.head_bytes);
  op.info = m.info(m.on->number);
  op.bytes_moved = m.head_bytes;
  m.content = m.content.subspan(m.head_bytes);
  m.head_bytes = 0;
  m.head_taken = true;
  const bool whole = !m.has_payload;
  if (whole) {
    consume(m, true);
  } else if (m.is_spent()) {
    // It is settled at once: a lane that is used for one message must not hold its
    // window because its receiver does not receive a payload of no bytes.
    settle(m, true);
  }
  op.end(operation_end::done);
  return whole;
}

bool lane_matcher::give_whole(operation& op, inbound_message& m) {
  if (op.target.total_bytes() != m.total_bytes()) {
    op.info = m.info(m.on->number);
    op.fail(cause::size_mismatch,
            two_sizes(op.target.total_bytes(), m.total_bytes(), "content"));
    return false;
  }
  if (op.target.type() != m.type || op.target.size() > 1) {
    const const_buffer_view unfit = unfit_view(op.target, m.type);
    if (!unfit.empty()) {
      op.info = m.info(m.on->number);
      op.fail(cause::type_mismatch, two_types(unfit.type(), m.type));
      return false;
    }
  }
  if (m.offered || op.target.size() != 1) {
    copy_content(op, m);
  } else if (!m.content.empty()) {
    std::memcpy(op.target[0].data(), m.content.data(), m.content.size());
  }
  if (m.offered) {
    MW_ASSERT(m.is_kept && m.target.remaining() == m.payload_bytes,
              "a pulled message is kept and has room for its payload");
    m.taker = &op;
    m.received = 0;
    set_stage(op, stage::taking, &m);
    op.bytes_moved = m.head_bytes;
    listener_.pull(m);
    return false;
  }
  op.info = m.info(m.on->number);
  op.bytes_moved = m.total_bytes();
  consume(m, true);
  op.end(operation_end::done);
  return true;
}

}  // namespace manyworlds::inline v0::detail::host
