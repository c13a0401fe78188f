#include "host/lane_matcher.hpp"

#include <algorithm>
#include <cstring>
#include <utility>

#include "link/offer_table.hpp"
#include "manyworlds/detail/assertion.hpp"
#include "memory/payload_copy.hpp"

namespace manyworlds::inline v0::detail::host {

namespace {

operation* earlier(operation* a, operation* b) noexcept {
  if (!a || !b) return a ? a : b;
  return a->backend.number < b->backend.number ? a : b;
}

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

// Lanes kept although they are idle, so that steady traffic allocates none.
constexpr std::size_t idle_lanes_kept = 64;
/// What is brought before a receive asks for it has a place among its link's offers. A
/// peer that lies about it may leave its own messages waiting.
constexpr std::size_t most_passed_over = shm::offer_table::offers;

}  // namespace

lane_matcher::lane_matcher(rank_t size, std::size_t known_lane_limit,
                           match_listener& listener)
    : listener_(listener), peers_(static_cast<std::size_t>(size)) {
  for (peer_lanes& p : peers_) {
    p.known.limit_to(known_lane_limit);
    p.discarded.limit_to(known_lane_limit);
  }
}

lane_matcher::~lane_matcher() {
  for (peer_lanes& p : peers_) {
    p.lanes.for_each([](inbound_lane& l) {
      while (inbound_message* m = l.first) {
        l.first = m->next;
        delete static_cast<kept_message*>(m);
      }
    });
  }
}

inbound_lane& lane_matcher::lane_of(rank_t rank, std::uint64_t number) {
  peer_lanes& p = peer(rank);
  if (inbound_lane* there = p.lanes.find(number)) return *there;
  inbound_lane& fresh = p.lanes.at(number);
  fresh.is_known = p.known.contains(number);
  fresh.is_discarded = has_discarded_ && p.discarded.contains(number);
  return fresh;
}

void lane_matcher::post(operation& op) {
  op.backend.number = ++posted_;
  if (has_discarded_) take_again(op);
  if (op.kind == operation_kind::receive) {
    if (op.peer != no_rank) {
      set_known(op.peer, op.on.number());
    } else {
      for (std::size_t p = 0; p < peers_.size(); ++p) {
        set_known(static_cast<rank_t>(p), op.on.number());
      }
    }
  }
  if (op.peer != no_rank && !op.takes_fresh_lanes) return post_on(op);
  find_message(op);
}

// What `find_message` does, for the one lane that most receives name: it is looked up
// once.
void lane_matcher::post_on(operation& op) {
  inbound_lane& l = lane_of(op.peer, op.on.number());
  if (l.first && !l.first->is_being_brought()) {
    give(op, *l.first);
    return match(op.peer, l);
  }
  if (peer(op.peer).left) {
    tidy(op.peer, l);
    return op.fail(cause::closed, has_left_text(op.peer));
  }
  wait_in(l.waiting, op);
}

void lane_matcher::find_message(operation& op) {
  // No earlier receive takes a message that is available here: it would have taken it.
  inbound_lane* l =
      op.peer == no_rank ? available_from_any(op) : available(op, peer(op.peer));
  if (l) {
    const rank_t source = l->first->source;
    const std::uint64_t number = l->number;
    give(op, *l->first);
    // If all it had was passed over and the next one taken from another lane, which
    // became known by that, this one may have been forgotten.
    l = find_lane(source, number);
    if (l) match(source, *l);
    return;
  }
  if (all_have_left_for(op)) return op.fail(cause::closed, has_left_text(op.peer));
  wait_in(queue_of(op), op);
}

void lane_matcher::wait_in(operation_queue& queue, operation& op) {
  queue.push_in_order(op);
  if (waiting_peers_ > 0) [[unlikely]]
    listener_.posted(op);
}

// A receive that names a lane takes what comes there from now on.
void lane_matcher::take_again(const operation& op) {
  const auto from = [&](peer_lanes& p) {
    p.discarded.erase(op.on.number());
    inbound_lane* const there = p.lanes.find(op.on.number());
    if (there) there->is_discarded = false;
  };
  if (op.peer != no_rank) return from(peer(op.peer));
  for (peer_lanes& p : peers_) from(p);
}

void lane_matcher::set_discarded(rank_t rank, std::uint64_t number) {
  has_discarded_ = true;
  // No receive of fresh lanes gets it either.
  set_known(rank, number);
  peer_lanes& p = peer(rank);
  const std::uint64_t forgotten = p.discarded.insert(number);
  if (inbound_lane* l = p.lanes.find(forgotten)) l->is_discarded = false;
  if (inbound_lane* l = p.lanes.find(number)) l->is_discarded = true;
}

bool lane_matcher::would_take(rank_t rank, std::uint64_t number) {
  peer_lanes& p = peer(rank);
  if (has_discarded_ && p.discarded.contains(number)) return true;
  if (inbound_lane* l = p.lanes.find(number)) return !l->first && first_taker(p, *l);
  inbound_lane absent;
  absent.number = number;
  return first_taker(p, absent);
}

bool lane_matcher::all_have_left_for(const operation& op) const {
  if (op.peer != no_rank) return peers_[static_cast<std::size_t>(op.peer)].left;
  const auto gone = std::count_if(peers_.begin(), peers_.end(),
                                  [](const peer_lanes& p) { return p.left; });
  return static_cast<std::size_t>(gone) + 1 >= peers_.size();
}

operation_queue& lane_matcher::queue_of(const operation& op) {
  if (op.peer == no_rank) {
    return op.takes_fresh_lanes ? waiting_for_any_fresh_
                                : waiting_for_any_[op.on.number()];
  }
  peer_lanes& p = peer(op.peer);
  return op.takes_fresh_lanes ? p.waiting_for_fresh
                              : lane_of(op.peer, op.on.number()).waiting;
}

void lane_matcher::unqueue(operation& op) {
  MW_ASSERT(stage_of(op) == stage::queued, "an operation that waits stands in a queue");
  auto& queue = *static_cast<operation_queue*>(op.backend.state);
  queue.remove(op);
  if (op.peer == no_rank && !op.takes_fresh_lanes && queue.empty()) {
    waiting_for_any_.erase(op.on.number());
  }
}

void lane_matcher::unpost(operation& op) {
  unqueue(op);
  if (op.peer != no_rank && !op.takes_fresh_lanes) {
    tidy(op.peer, lane_of(op.peer, op.on.number()));
  }
}

bool lane_matcher::accepts(const operation& op, peer_lanes& p,
                           std::uint64_t number) const {
  if (op.on.number() == number) return true;
  // Only the library takes the messages of its reserved lanes.
  return !(number & lane::reserved) && !p.known.contains(number);
}

operation* lane_matcher::first_taker(peer_lanes& p, inbound_lane& l) {
  operation* taker = l.waiting.front();
  if (!waiting_for_any_.empty()) {
    const auto any = waiting_for_any_.find(l.number);
    if (any != waiting_for_any_.end()) taker = earlier(taker, any->second.front());
  }
  for (operation_queue* queue : {&p.waiting_for_fresh, &waiting_for_any_fresh_}) {
    for (operation* op = queue->front(); op; op = operation_queue::next(*op)) {
      if (!accepts(*op, p, l.number)) continue;
      taker = earlier(taker, op);
      break;
    }
  }
  return taker;
}

inbound_lane* lane_matcher::available(const operation& op, peer_lanes& p) {
  inbound_lane* found = nullptr;
  inbound_lane* own = p.lanes.find(op.on.number());
  if (own && own->first && !own->first->is_being_brought()) found = own;
  if (!op.takes_fresh_lanes) return found;
  std::size_t passed_over = 0;
  for (inbound_lane* fresh : p.fresh) {
    MW_ASSERT(fresh->is_fresh && fresh->first, "a fresh lane has messages");
    // Nothing would wake who waited behind such a one: its end is an event of its own
    // lane alone.
    if (fresh->first->is_being_brought()) {
      if (++passed_over == most_passed_over) break;
      continue;
    }
    if (!found || fresh->first->arrival < found->first->arrival) found = fresh;
    break;
  }
  return found;
}

inbound_lane* lane_matcher::available_from_any(const operation& op) {
  for (std::size_t i = 0; i < peers_.size(); ++i) {
    const std::size_t p = (next_peer_ + i) % peers_.size();
    if (inbound_lane* l = available(op, peers_[p])) {
      if (op.kind == operation_kind::receive) next_peer_ = p + 1;
      return l;
    }
  }
  return nullptr;
}

void lane_matcher::set_known(rank_t rank, std::uint64_t number) {
  peer_lanes& p = peer(rank);
  inbound_lane* const own = p.lanes.find(number);
  if (own ? own->is_known : p.known.contains(number)) return;
  p.known.insert(number, [&](std::uint64_t oldest) {
    inbound_lane* l = p.lanes.find(oldest);
    if (!l) return false;
    if (oldest == number) return true;
    // A receiver that looks at the size receives such a message no more. With a lane
    // for each request the message would stay, and keep its lane.
    if (l->messages == 1 && l->first->is_spent()) consume(*l->first, true);
    const bool is_in_use = !l->idle();
    l->is_known = is_in_use;
    if (!is_in_use) tidy(rank, *l);
    return is_in_use;
  });
  if (!own) return;
  own->is_known = true;
  set_fresh(p, *own);
}

// A lane is fresh while it has messages and was not received on.
void lane_matcher::set_fresh(peer_lanes& p, inbound_lane& l) {
  const bool fresh = l.first && !l.is_known && !(l.number & lane::reserved);
  if (fresh == l.is_fresh) return;
  l.is_fresh = fresh;
  if (fresh) {
    p.fresh.push_back(&l);
    return;
  }
  MW_ASSERT(!p.fresh.empty(), "a fresh lane stands in its peer's list");
  if (p.fresh.front() == &l) {
    // The oldest is received first; searching 50,000 lanes takes 90 us.
    p.fresh.pop_front();
  } else {
    std::erase(p.fresh, &l);
  }
}

inbound_message* lane_matcher::arrive(inbound_message& whole) {
  MW_ASSERT(!whole.offered && !whole.is_kept,
            "a message that has come whole is not kept yet");
  inbound_lane& l = *whole.on;
  if (!l.first) {
    peer_lanes& p = peer(whole.source);
    while (operation* op = first_taker(p, l)) {
      unqueue(*op);
      if (give(*op, whole)) return nullptr;
    }
  }
  return keep(whole);
}

inbound_message* lane_matcher::keep(inbound_message& m) {
  MW_ASSERT(!m.is_kept && !m.next && !m.is_being_brought(), "a message is kept once");
  auto made = std::make_unique<kept_message>(std::move(m));
  if (!made->content.empty()) {
    std::byte* into = made->small_content.data();
    if (made->content.size() > made->small_content.size()) {
      made->owned_content =
          std::make_unique_for_overwrite<std::byte[]>(made->content.size());
      into = made->owned_content.get();
    }
    copy_payload(into, made->content.data(), made->content.size());
    made->content = {into, made->content.size()};
  }
  kept_message* const kept = made.release();
  kept->is_kept = true;
  kept->arrival = ++arrived_;
  inbound_lane& l = *kept->on;
  MW_ASSERT((l.messages == 0) == (l.first == nullptr) && !l.first == !l.last,
            "a lane has as many messages as it counts");
  kept->previous = l.last;
  (l.last ? l.last->next : l.first) = kept;
  l.last = kept;
  ++l.messages;
  set_fresh(peer(kept->source), l);
  return kept;
}

void lane_matcher::match(rank_t source, inbound_lane& l) {
  peer_lanes& p = peer(source);
  while (l.first && !l.first->is_being_brought()) {
    operation* op = first_taker(p, l);
    if (!op) return;
    unqueue(*op);
    give(*op, *l.first);
  }
}

// How a message meets the operation that was found for it.

bool lane_matcher::try_take(operation& op) {
  const bool is_receive = op.kind == operation_kind::receive;
  // What is received on for the first time, or again, changes what lanes are known.
  if (op.on_device || (is_receive && op.takes_fresh_lanes)) return false;
  if (op.peer == no_rank && has_discarded_) return false;
  const std::size_t next_peer = next_peer_;
  inbound_lane* const l =
      op.peer == no_rank ? available_from_any(op) : available(op, peer(op.peer));
  if (!l || l->is_discarded || (is_receive && !is_known_to_all(op)) ||
      !fits_at_once(op, *l->first)) {
    next_peer_ = next_peer;
    return false;
  }
  inbound_message& m = *l->first;
  MW_ASSERT(l->waiting.empty() || !is_receive,
            "no receive waits on a lane that has a message for it");
  if (!is_receive) {
    op.info = m.info(l->number);
    return true;
  }
  const rank_t source = m.source;
  op.head_bytes > 0 ? static_cast<void>(take_head(op, m)) : take_whole(op, m);
  match(source, *l);
  return true;
}

bool lane_matcher::is_known_to_all(const operation& op) noexcept {
  const auto is_known = [&op](peer_lanes& p) {
    const inbound_lane* const l = p.lanes.find(op.on.number());
    return l ? l->is_known : p.known.contains(op.on.number());
  };
  if (op.peer != no_rank) return is_known(peer(op.peer));
  return std::all_of(peers_.begin(), peers_.end(), is_known);
}

// Whether `give` would end the operation with that message, and well.
bool lane_matcher::fits_at_once(const operation& op, const inbound_message& m) {
  if (op.kind == operation_kind::arrival) return true;
  if (m.cancelled) return false;
  if (op.head_bytes > 0) return op.head_bytes == m.head_bytes && !m.is_spent();
  return !m.offered && !m.on_device && op.target.total_bytes() == m.total_bytes() &&
         unfit_view(op.target, m.type).empty();
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
  const bool whole = take_head(op, m);
  op.end(operation_end::done);
  return whole;
}

// Returns whether that was all of the message, which then is gone.
bool lane_matcher::take_head(operation& op, inbound_message& m) {
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
  if (m.offered) {
    copy_content(op, m);
    MW_ASSERT(m.is_kept && m.target.remaining() == m.payload_bytes,
              "a pulled message is kept and has room for its payload");
    m.taker = &op;
    m.received = 0;
    set_stage(op, stage::taking, &m);
    op.bytes_moved = m.head_bytes;
    listener_.pull(m);
    return false;
  }
  take_whole(op, m);
  op.end(operation_end::done);
  return true;
}

// The message is gone afterwards.
void lane_matcher::take_whole(operation& op, inbound_message& m) {
  MW_ASSERT(!m.offered, "a message that is taken whole has come whole");
  if (op.target.size() != 1) {
    copy_content(op, m);
  } else if (!m.content.empty()) {
    copy_payload(op.target[0].data(), m.content.data(), m.content.size());
  }
  op.info = m.info(m.on->number);
  op.bytes_moved = m.total_bytes();
  consume(m, true);
}

// How messages leave their lanes, and how waiting ends without one.

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
  MW_ASSERT(m.is_kept && l.messages > 0, "only a message in its lane leaves it");
  MW_ASSERT((m.previous ? m.previous->next : l.first) == &m &&
                (m.next ? m.next->previous : l.last) == &m,
            "a kept message stands in its lane");
  // Discarding takes thousands, the last first: none may be searched for (law 9).
  (m.previous ? m.previous->next : l.first) = m.next;
  (m.next ? m.next->previous : l.last) = m.previous;
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
