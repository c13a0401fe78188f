#include "host/lane_matcher.hpp"

#include <algorithm>
#include <cstring>
#include <utility>

#include "manyworlds/detail/assertion.hpp"

namespace manyworlds::inline v0::detail::host {

namespace {

operation* earlier(operation* a, operation* b) noexcept {
  if (!a || !b) return a ? a : b;
  return a->backend.number < b->backend.number ? a : b;
}

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
    give(op, *l->first);
    match(source, *l);
    return;
  }
  if (nobody_left_for(op)) return op.fail(cause::closed, has_left_text(op.peer));
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

bool lane_matcher::nobody_left_for(const operation& op) const {
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
  if (op.takes_fresh_lanes && !p.fresh.empty()) {
    inbound_lane* fresh = p.fresh.front();
    MW_ASSERT(fresh->is_fresh && fresh->first, "a fresh lane has messages");
    if (fresh->first->is_being_brought()) return found;
    if (!found || fresh->first->arrival < found->first->arrival) found = fresh;
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
  auto* kept = new kept_message(std::move(m));
  if (!kept->content.empty()) {
    std::byte* into = kept->small_content.data();
    if (kept->content.size() > kept->small_content.size()) {
      kept->owned_content =
          std::make_unique_for_overwrite<std::byte[]>(kept->content.size());
      into = kept->owned_content.get();
    }
    std::memcpy(into, kept->content.data(), kept->content.size());
    kept->content = {into, kept->content.size()};
  }
  kept->is_kept = true;
  kept->arrival = ++arrived_;
  inbound_lane& l = *kept->on;
  MW_ASSERT((l.messages == 0) == (l.first == nullptr) && !l.first == !l.last,
            "a lane has as many messages as it counts");
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

}  // namespace manyworlds::inline v0::detail::host
