// How a message and the operation that was found for it meet.
#include <cstring>

#include "copy_past_caches.hpp"
#include "lane_matcher.hpp"

namespace manyworlds::inline v0::host {

namespace {

std::string two_sizes(std::size_t wanted, std::size_t sent, const char* what) {
  return "the receive is for " + std::to_string(wanted) + " bytes, the message's " +
         what + " has " + std::to_string(sent) + "; it stays at the head of its lane";
}

/// What has come of the message; `m.target` is where the rest goes.
void copy_content(operation& op, inbound_message& m) {
  m.target = view_cursor(op.target);
  copy_part(m.content.data(), m.content.size(), m.target, m.content.size());
}

}  // namespace

// True if the message was consumed by it.
bool lane_matcher::give(operation& op, inbound_message& m) {
  if (op.kind == operation_kind::arrival) {
    op.info = m.info(m.on->number);
    op.end(operation_end::done);
    return false;
  }
  if (!m.on->is_known) set_known(m.source, m.on->number);
  if (m.cancelled) {
    const std::string who = "rank " + std::to_string(m.source);
    consume(m, false);
    op.fail(cause::cancelled_by_peer, who + " gave up the message after its head");
    return true;
  }
  if (op.head_bytes > 0) return give_head(op, m);
  if (op.elsewhere || m.elsewhere) [[unlikely]]
    return give_description(op, m);
  return give_whole(op, m);
}

bool lane_matcher::give_description(operation& op, inbound_message& m) {
  if (!op.elsewhere || !m.elsewhere) {
    op.fail(cause::memory_mismatch,
            m.elsewhere ? "the message lies in device memory: receive it into such; it "
                          "stays at the head of its lane"
                        : "the message lies in host memory: receive it into such; it "
                          "stays at the head of its lane");
    return false;
  }
  payload_elsewhere& room = *op.elsewhere;
  if (!room.takes_any) {
    const described_payload& sent = m.described;
    if (m.head_bytes > 0) {
      op.fail(cause::size_mismatch, two_sizes(0, m.head_bytes, "head"));
      return false;
    }
    if (room.bytes != sent.bytes) {
      op.fail(cause::size_mismatch, two_sizes(room.bytes, sent.bytes, "content"));
      return false;
    }
    // Bytes are any elements, for who only passes them on.
    if (room.type != sent.type && room.type != dtype::uint8 &&
        sent.type != dtype::uint8) {
      op.fail(cause::type_mismatch,
              "the receive is for " + std::string(name_of(room.type)) +
                  ", the message has " + std::string(name_of(sent.type)) +
                  "; it stays at the head of its lane");
      return false;
    }
  }
  room.description.assign(m.content.begin(), m.content.end());
  op.info = m.info(m.on->number);
  consume(m, true);
  op.end(operation_end::done);
  return true;
}

bool lane_matcher::give_head(operation& op, inbound_message& m) {
  if (op.head_bytes != m.head_bytes) {
    op.fail(cause::size_mismatch, two_sizes(op.head_bytes, m.head_bytes, "head"));
    return false;
  }
  std::memcpy(op.head, m.content.data(), m.head_bytes);
  op.info = m.info(m.on->number);
  op.bytes_moved = m.head_bytes;
  m.content = m.content.subspan(m.head_bytes);
  m.head_bytes = 0;
  m.head_taken = true;
  const bool whole = m.payload_bytes == 0;
  if (whole) consume(m, true);
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
  if (m.offered || op.target.size() != 1) {
    copy_content(op, m);
  } else if (!m.content.empty()) {
    std::memcpy(op.target[0].data(), m.content.data(), m.content.size());
  }
  if (m.offered) {
    m.taker = &op;
    m.received = 0;
    set_stage(op, stage::taking, &m);
    op.bytes_moved = m.head_bytes;
    events_.pull(m);
    return false;
  }
  op.info = m.info(m.on->number);
  op.bytes_moved = m.total_bytes();
  consume(m, true);
  op.end(operation_end::done);
  return true;
}

}  // namespace manyworlds::inline v0::host
