// Lane matcher: matches the messages of all peers with the waiting receives of one
// world.
#pragma once

#include <cstdint>
#include <deque>
#include <string>
#include <unordered_map>
#include <vector>

#include "host/inbound_message.hpp"
#include "host/known_lanes.hpp"
#include "host/lane_set.hpp"
#include "host/lane_table.hpp"
#include "host/operation_queue.hpp"
#include "manyworlds/detail/assertion.hpp"

namespace manyworlds::inline v0::detail::host {

/// Holds one lane of one peer, as its receiver sees it. Messages leave it in order:
/// none is matched before the one ahead was taken whole. So a receive that is given up
/// loses nothing.
struct inbound_lane {
  std::uint64_t number = 0;
  inbound_message* first = nullptr;
  inbound_message* last = nullptr;
  std::size_t messages = 0;
  operation_queue waiting;
  bool is_fresh = false;      ///< stands in its peer's list of fresh lanes
  bool is_known = false;      ///< stands among its peer's known lanes
  bool is_discarded = false;  ///< stands among its peer's discarded lanes

  std::uint64_t received = 0;
  std::size_t held_bytes = 0;  ///< of the window, by messages here or not yet credited
  std::size_t owed_bytes = 0;  ///< consumed, not yet credited
  std::uint64_t owed_messages = 0;
  std::size_t owed_content = 0;
  bool is_owed = false;

  [[nodiscard]] bool idle() const noexcept {
    return !first && waiting.empty() && held_bytes == 0 && !is_owed;
  }
};

/// Receives what matching causes at the message's channel. Must not call back into
/// the matcher.
class match_listener {
 public:
  /// `m.taker` is set: the payload must be brought into `m.target`.
  virtual void pull(inbound_message& m) = 0;
  /// A receive has all of `m`, or `m` is gone; it is destroyed afterwards.
  virtual void consumed(inbound_message& m, bool was_received) = 0;
  /// `op` has begun to wait. Called only while a peer waits for the window
  /// (`tell_of_waiting`).
  virtual void posted(const operation&) {}
  /// A lane has no message left. Called only while a peer waits for the window.
  virtual void emptied(rank_t, inbound_lane&) {}

 protected:
  ~match_listener() = default;
};

class lane_matcher {
 public:
  lane_matcher(rank_t size, std::size_t known_lane_limit, match_listener& listener);
  lane_matcher(const lane_matcher&) = delete;
  lane_matcher& operator=(const lane_matcher&) = delete;
  ~lane_matcher();

  [[nodiscard]] inbound_lane& lane_of(rank_t peer, std::uint64_t number);
  /// Returns null if the lane is not known.
  [[nodiscard]] inbound_lane* find_lane(rank_t rank, std::uint64_t number) {
    return peer(rank).lanes.find(number);
  }

  /// Returns the first message of a lane that no receive has taken, or null.
  [[nodiscard]] const inbound_message* first_message(rank_t peer, std::uint64_t number) {
    const inbound_lane* const l = this->peer(peer).lanes.find(number);
    return l ? l->first : nullptr;
  }

  /// Does what a receive or an arrival asks for, if a message is here that lets it end at
  /// once. Returns false, with nothing done, if there is none or it does not fit, and for
  /// what receives on a lane for the first time.
  [[nodiscard]] bool try_take(operation& op);
  /// Returns the lane if its next message goes to a receive that names it, since no
  /// message and no other kind of receive is in the way; else null.
  [[nodiscard]] inbound_lane* awaited_lane(rank_t rank, std::uint64_t number) noexcept {
    peer_lanes& p = peer(rank);
    inbound_lane* const l = p.lanes.find(number);
    if (!l || l->first || l->waiting.empty()) return nullptr;
    const bool is_only_kind = waiting_for_any_.empty() && p.waiting_for_fresh.empty() &&
                              waiting_for_any_fresh_.empty();
    return is_only_kind && l->is_known && !l->is_discarded ? l : nullptr;
  }

  /// Begins a receive or an arrival: it ends at once, takes an offered message, or
  /// waits.
  void post(operation& op);
  /// Takes out a waiting operation.
  void unpost(operation& op);

  /// Matches a message that has come whole. Its content is borrowed: it is copied to a
  /// receive, or to keep it. Returns the message if it stays here.
  inbound_message* arrive(inbound_message& whole);
  /// Appends a message to its lane, with a copy of its content.
  inbound_message* keep(inbound_message& m);
  /// Lets an offered message be matched: it is announced, its payload still at the
  /// sender.
  void announce(inbound_message& kept) { match(kept.source, *kept.on); }

  /// Called when all of a pulled message is in its taker's memory.
  void complete(inbound_message& m);
  /// Called when all of a message that no receive takes was copied here.
  void collected(inbound_message& m);
  /// Gives up the taker of a pulled message. The message is whole again at the head of
  /// its lane, and the next receive takes it. Precondition: the caller has stopped the
  /// sender.
  void release_taker(inbound_message& m);
  /// Called when the sender has given up a message that is here. Its receive, if that
  /// was given up too, ends as withdrawn; or as closed, if `closed` says why.
  void withdraw(inbound_message& m, const std::string& closed = {});

  /// Removes a message that no receive takes.
  void drop(inbound_message& m);

  /// Marks a lane as discarded until a receive or an arrival names it. What arrives
  /// stays only until its channel has dropped it.
  void set_discarded(rank_t peer, std::uint64_t number);
  /// Fails operations that wait on a discarded lane with `cancelled`; for `no_rank`
  /// those that wait for any peer.
  void fail_discarded(rank_t peer, std::uint64_t number);

  /// Called when a peer begins or ceases to wait for the window.
  void tell_of_waiting(bool waits) noexcept {
    waiting_peers_ += waits ? 1 : -1;
    MW_ASSERT(waiting_peers_ >= 0 &&
                  static_cast<std::size_t>(waiting_peers_) < peers_.size() + 1,
              "each peer that waits is counted once");
  }
  /// Returns whether a message that arrived now on this lane would not stay: a receive
  /// or an arrival waits for it, or the lane is discarded.
  [[nodiscard]] bool would_take(rank_t peer, std::uint64_t number);
  [[nodiscard]] bool waits_for_fresh_lanes(rank_t peer) const noexcept {
    return !waiting_for_any_fresh_.empty() ||
           !peers_[static_cast<std::size_t>(peer)].waiting_for_fresh.empty();
  }

  /// Called when nothing follows from this peer: what waits for it alone fails with
  /// `closed`.
  void peer_left(rank_t peer);
  /// Fails everything that waits.
  void fail_waiting(enum cause why, const std::string& detail);

  /// Forgets an idle lane if there are many lanes.
  void tidy(rank_t peer, inbound_lane& l);

  template <class Visit>
  void for_each_lane(Visit&& visit) const {
    for (std::size_t p = 0; p < peers_.size(); ++p) {
      peers_[p].lanes.for_each(
          [&](const inbound_lane& l) { visit(static_cast<rank_t>(p), l); });
    }
  }

 private:
  struct peer_lanes {
    lane_table<inbound_lane> lanes;
    known_lanes known;
    lane_set discarded;
    operation_queue waiting_for_fresh;
    /// Unknown lanes that have messages, in order of their first.
    std::deque<inbound_lane*> fresh;
    bool left = false;
  };

  [[nodiscard]] peer_lanes& peer(rank_t rank) {
    MW_ASSERT(rank >= 0 && static_cast<std::size_t>(rank) < peers_.size(),
              "a peer is a member");
    return peers_[static_cast<std::size_t>(rank)];
  }
  [[nodiscard]] bool accepts(const operation& op, peer_lanes& p,
                             std::uint64_t number) const;
  [[nodiscard]] operation* first_taker(peer_lanes& p, inbound_lane& l);
  [[nodiscard]] inbound_lane* available(const operation& op, peer_lanes& p);
  [[nodiscard]] inbound_lane* available_from_any(const operation& op);
  [[nodiscard]] bool is_known_to_all(const operation& op) noexcept;
  [[nodiscard]] static bool fits_at_once(const operation& op, const inbound_message& m);
  [[nodiscard]] operation_queue& queue_of(const operation& op);
  [[nodiscard]] bool all_have_left_for(const operation& op) const;
  void unqueue(operation& op);
  void set_known(rank_t rank, std::uint64_t number);
  void set_fresh(peer_lanes& p, inbound_lane& l);
  void take_again(const operation& op);

  /// Matches an operation: it ends at once, takes an offered message, or waits in its
  /// queue.
  void find_message(operation& op);
  void post_on(operation& op);
  void wait_in(operation_queue& queue, operation& op);
  void match(rank_t source, inbound_lane& l);
  bool give(operation& op, inbound_message& m);
  bool pass_over(operation& op, inbound_message& m);
  bool give_head(operation& op, inbound_message& m);
  bool take_head(operation& op, inbound_message& m);
  bool give_whole(operation& op, inbound_message& m);
  void take_whole(operation& op, inbound_message& m);
  bool give_description(operation& op, inbound_message& m);
  void settle(inbound_message& m, bool was_received);
  void consume(inbound_message& m, bool was_received);
  void unlink(inbound_message& m) noexcept;

  match_listener& listener_;
  std::vector<peer_lanes> peers_;
  std::unordered_map<std::uint64_t, operation_queue> waiting_for_any_;
  operation_queue waiting_for_any_fresh_;
  std::size_t next_peer_ = 0;
  std::uint64_t posted_ = 0;
  std::uint64_t arrived_ = 0;
  /// The number of peers that wait for the window.
  int waiting_peers_ = 0;
  /// A lane was discarded at some time.
  bool has_discarded_ = false;
};

}  // namespace manyworlds::inline v0::detail::host
