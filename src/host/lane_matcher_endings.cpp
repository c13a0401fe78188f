// How messages leave their lanes, and how waiting ends without one.
#include <algorithm>
#include <utility>

#include "host/lane_matcher.hpp"
#include "manyworlds/detail/assertion.hpp"

namespace manyworlds::inline v0::detail::host {

namespace {

// Lanes kept although they are idle, so that steady traffic allocates none.
constexpr std::size_t idle_lanes_kept = 64;

}  // namespace

void lane_matcher::complete(inbound_message& m) {
  MW_ASSERT(
      m.taker && stage_of(*m.taker) == stage::taking && m.taker->backend.state == &m,
      "a pulled message and its receive know each other");
  operation& op = *m.taker;
  inbound_lane& l = *m.on;
  const rank_t source = m.source;
  set_stage(op, stage::none, nullptr);
  op.bytes_moved = m.total_bytes();
  op.info = m.info(l.number);
  consume(m, true);
  op.end(operation_end::done);
  match(source, l);
}

void lane_matcher::collected(inbound_message& m) {
  MW_ASSERT(m.collecting && !m.taker, "what is collected has no taker");
  m.collecting = false;
  m.offered = false;
  match(m.source, *m.on);
}

void lane_matcher::release_taker(inbound_message& m) {
  MW_ASSERT(
      m.taker && stage_of(*m.taker) == stage::taking && m.taker->backend.state == &m,
      "a pulled message and its receive know each other");
  set_stage(*m.taker, stage::none, nullptr);
  m.taker = nullptr;
  m.giving_up = false;
  m.received = 0;
  match(m.source, *m.on);
}

void lane_matcher::withdraw(inbound_message& m, const std::string& closed) {
  inbound_lane& l = *m.on;
  const rank_t source = m.source;
  operation* taker = std::exchange(m.taker, nullptr);
  MW_ASSERT(!taker || (stage_of(*taker) == stage::taking && taker->backend.state == &m),
            "a pulled message and its receive know each other");
  const bool given_up = m.giving_up;
  const bool begun = m.received > 0 || given_up;
  const bool is_told = m.head_taken && !begun;
  if (is_told) {
    // The receiver that took the head goes on to the payload, and must not meet the
    // next message instead.
    m.cancelled = true;
    m.offered = false;
    // Its receive may never come, and what is left needs no window.
    if (!m.is_settled) settle(m, false);
  } else {
    consume(m, false);
  }
  if (taker) {
    set_stage(*taker, stage::none, nullptr);
    taker->begun = false;
    if (given_up && closed.empty()) {
      taker->end(operation_end::withdrawn);
    } else if (given_up) {
      taker->fail(cause::closed, closed);
    } else if (begun) {
      taker->fail(
          cause::cancelled_by_peer,
          "rank " + std::to_string(source) + " gave up the message after a part of it");
    } else if (is_told) {
      queue_of(*taker).push_in_order(*taker);
    } else {
      // Another member's message may have come meanwhile, or one that waits for the
      // window may have been told that no receive takes it.
      find_message(*taker);
    }
  }
  match(source, l);
}

void lane_matcher::settle(inbound_message& m, bool was_received) {
  MW_ASSERT(!m.is_settled, "the window of a message is given back once");
  if (was_received) ++m.on->received;
  listener_.consumed(m, was_received);
  m.wants_taken = false;
  m.is_settled = true;
}

void lane_matcher::consume(inbound_message& m, bool was_received) {
  inbound_lane& l = *m.on;
  if (!m.is_settled) settle(m, was_received);
  if (!m.is_kept) return;
  const rank_t source = m.source;
  unlink(m);
  set_fresh(peer(source), l);
  delete static_cast<kept_message*>(&m);
  if (waiting_peers_ > 0 && !l.first) [[unlikely]]
    listener_.emptied(source, l);
}

void lane_matcher::drop(inbound_message& m) {
  inbound_lane& l = *m.on;
  const rank_t source = m.source;
  consume(m, false);
  match(source, l);
}

void lane_matcher::fail_discarded(rank_t rank, std::uint64_t number) {
  const std::string text = "its lane was discarded";
  if (rank != no_rank) {
    inbound_lane* l = find_lane(rank, number);
    if (!l || l->waiting.empty()) return;
    l->waiting.fail_all(cause::cancelled, text);
    // An operation that ended may have caused the lane to be forgotten.
    l = find_lane(rank, number);
    if (l) tidy(rank, *l);
    return;
  }
  const auto found = waiting_for_any_.find(number);
  if (found == waiting_for_any_.end()) return;
  operation_queue waiting;
  while (operation* op = found->second.pop_front()) waiting.push_back(*op);
  waiting_for_any_.erase(found);
  waiting.fail_all(cause::cancelled, text);
}

void lane_matcher::unlink(inbound_message& m) noexcept {
  inbound_lane& l = *m.on;
  inbound_message* before = nullptr;
  MW_ASSERT(m.is_kept && l.messages > 0, "only a message in its lane leaves it");
  for (inbound_message* at = l.first; at != &m; at = at->next) {
    MW_ASSERT(at != nullptr, "a kept message stands in its lane");
    before = at;
  }
  (before ? before->next : l.first) = m.next;
  if (l.last == &m) l.last = before;
  --l.messages;
  MW_ASSERT((l.messages == 0) == (l.first == nullptr) && !l.first == !l.last,
            "a lane has as many messages as it counts");
}

void lane_matcher::peer_left(rank_t rank) {
  peer_lanes& p = peer(rank);
  MW_ASSERT(!p.left, "a peer leaves once");
  p.left = true;
  const std::string text = has_left_text(rank);
  p.lanes.for_each([&](inbound_lane& l) { l.waiting.fail_all(cause::closed, text); });
  p.waiting_for_fresh.fail_all(cause::closed, text);
  const auto gone = std::count_if(peers_.begin(), peers_.end(),
                                  [](const peer_lanes& each) { return each.left; });
  if (static_cast<std::size_t>(gone) + 1 < peers_.size()) return;
  for (auto& entry : waiting_for_any_) entry.second.fail_all(cause::closed, text);
  waiting_for_any_fresh_.fail_all(cause::closed, text);
}

void lane_matcher::fail_waiting(enum cause why, const std::string& detail) {
  for (peer_lanes& p : peers_) {
    p.lanes.for_each([&](inbound_lane& l) { l.waiting.fail_all(why, detail); });
    p.waiting_for_fresh.fail_all(why, detail);
  }
  for (auto& entry : waiting_for_any_) entry.second.fail_all(why, detail);
  waiting_for_any_fresh_.fail_all(why, detail);
}

void lane_matcher::tidy(rank_t rank, inbound_lane& l) {
  peer_lanes& p = peer(rank);
  MW_ASSERT(!l.idle() || (!l.is_fresh && l.messages == 0 && l.owed_bytes == 0),
            "no list holds an idle lane");
  if (p.lanes.size() > idle_lanes_kept && l.idle()) p.lanes.erase(l.number);
}

}  // namespace manyworlds::inline v0::detail::host
