// Sender: the transport-independent outgoing half of one channel: lanes, windows,
// offers, and how sends end.
#pragma once

#include <cstdint>
#include <deque>
#include <string>
#include <unordered_map>
#include <utility>

#include "host/core.hpp"
#include "host/frame.hpp"
#include "host/lane_table.hpp"
#include "link/offer_table.hpp"
#include "memory/view_cursor.hpp"

namespace manyworlds::inline v0::detail::host {

/// Returns the bytes of a send's head and payload.
[[nodiscard]] inline std::size_t whole_bytes(const operation& op) noexcept {
  return op.head_bytes + op.source.total_bytes();
}

struct pending_send;

struct outgoing_lane {
  std::uint64_t number = 0;
  operation_queue waiting;
  /// It stands in the sender's list of blocked lanes: sends wait, or one is granted.
  bool is_blocked = false;
  /// Its first send waits for the window that all lanes share.
  bool is_wanting = false;
  bool has_asked = false;  ///< the peer was told of that send
  bool is_ready = false;   ///< stands in the sender's list of lanes that may go on
  time_point wanting_since{};
  /// A message that was sent without a window because a receive waits. Nothing of the
  /// lane follows before it has ended, since it may come back.
  pending_send* granted = nullptr;
  std::size_t used_window = 0;  ///< sent and not credited
  std::uint64_t sent = 0;
  std::uint64_t undelivered_messages = 0;
  std::size_t undelivered_bytes = 0;
};

/// Holds a send that ends by what the peer does: an offer, or an eager message that is
/// to be delivered.
struct pending_send {
  enum class phase : std::uint8_t {
    offered,  ///< not pulled
    pulled,   ///< its slices are being sent; one that is read too stays here
    sent,     ///< nothing is left to send
  };
  enum class ending : std::uint8_t { no, taken, withdrawn, closed, returned, discarded };

  std::uint64_t id = 0;
  operation* op = nullptr;
  phase at = phase::offered;
  bool eager = false;
  bool granted = false;
  /// The receiver reads the payload, too, and takes the offer: slices only help it.
  bool is_read_too = false;
  std::uint32_t generation = 0;
  const_view_cursor cursor;
  /// Decides over shared memory between the receiver's taking and our giving up.
  shm::offer_ticket ticket;
  /// How it ends once the kernel lets go of the user's memory, or the peer has
  /// answered.
  ending wanted = ending::no;
  time_point settle_by = time_point::max();
};

class sender {
 public:
  using phase = pending_send::phase;
  using ending = pending_send::ending;

  explicit sender(core& shared) noexcept : core_(shared) {}
  sender(const sender&) = delete;
  sender& operator=(const sender&) = delete;
  virtual ~sender() = default;

  // Operations.
  void start(operation& op);
  /// Withdraws a send, as `backend::withdraw` does.
  bool withdraw(operation& op);
  /// Ends all sends as closed, at once or when the kernel lets go, and tells the peer.
  void close(const std::string& detail);
  /// A message was numbered and not sent, or may have been: no other follows it.
  void cut_short() noexcept { is_cut_short_ = true; }

  // The peer's frames. Each returns null, or what is wrong with the frame.
  const char* on_pull(const frame& f);
  const char* on_unpull(const frame& f);
  const char* on_taken(const frame& f);
  const char* on_accepted(const frame& f);
  const char* on_withdrawn(const frame& f);
  const char* on_credit(const frame& f);
  const char* on_ready(const frame& f);
  const char* on_returned(const frame& f);
  const char* on_discarded(const frame& f);

  /// Sends a frame without content, in order, even if everything is full.
  virtual void control(const frame& f) = 0;
  /// Returns whether frames that were given to `control` find no room.
  [[nodiscard]] virtual bool is_backed_up() const noexcept { return false; }
  /// Returns whether frames or slices wait to be sent.
  [[nodiscard]] virtual bool has_something() const noexcept = 0;

  /// Returns whether no send waits and none is pending.
  [[nodiscard]] bool is_drained() const noexcept {
    return waiting_ == 0 && pending_.empty();
  }
  [[nodiscard]] bool has_begun() const noexcept { return !active_.empty(); }
  /// Returns since when slices are sent. Precondition: `has_begun`.
  [[nodiscard]] time_point active_since() const noexcept { return active_since_; }
  [[nodiscard]] bool is_settling() const noexcept { return settling_ > 0; }
  void settle_overdue(time_point now);
  /// Returns whether `log_waiting` has something to check.
  [[nodiscard]] bool is_wanting() const noexcept {
    return wanting_ > 0 && !core_.has_logged_window;
  }
  /// Logs once a world that a send has waited for long, and why.
  void log_waiting(time_point now);
  /// Called when another user of the offer table may have ended offers.
  void look_for_offer_room() noexcept {
    if (!std::exchange(wants_offer_room_, false)) return;
    ready_lacks_offer_ = false;
    may_go_on_ = true;
  }

  template <class Visit>
  void for_each_lane(Visit&& visit) const {
    lanes_.for_each(visit);
  }

 protected:
  // The transport's part.
  /// Returns the size of the largest message, head included, that may be sent unasked.
  [[nodiscard]] virtual std::size_t eager_limit() const noexcept = 0;
  /// Returns whether no message can be announced now. It is asked again when that may
  /// have changed.
  [[nodiscard]] virtual bool is_full() noexcept = 0;
  /// Returns whether a payload can be offered. With `asked`, the reserve for messages
  /// that a receive waits for is used too.
  [[nodiscard]] virtual bool has_offer_room(bool asked) noexcept = 0;
  /// Returns whether a message that would be offered, and may be kept, finds room to go
  /// unasked all the same: `put` follows and uses it.
  [[nodiscard]] virtual bool finds_room_unasked(const operation&) noexcept {
    return false;
  }
  /// Announces `op` with its head, and with its payload if it is eager. `p` is set if
  /// its end depends on the peer.
  virtual void put(const frame& f, const operation& op, pending_send* p) = 0;
  /// Returns whether the kernel holds the memory of `p`.
  [[nodiscard]] virtual bool is_in_use(const pending_send& p) const noexcept = 0;
  /// Decides finally that the peer does not get an offer. Returns false if the peer has
  /// it.
  [[nodiscard]] virtual bool revoke(pending_send& p) noexcept = 0;
  /// Called when the peer says that it has the offer, of which nothing was sent or only
  /// slices that helped. Returns null, or what is wrong with that.
  [[nodiscard]] virtual const char* check_taken(const pending_send& p) const noexcept = 0;
  /// Called when `p` is about to be forgotten.
  virtual void forget(pending_send& p) noexcept = 0;

  /// Returns whether `send_all_waiting` may find something to do.
  [[nodiscard]] bool may_send() const noexcept {
    return may_go_on_ || (!ready_.empty() && !ready_lacks_offer_) || asks_left_ > 0;
  }
  void send_all_waiting();
  /// Returns the lane, if it and the windows take a message of this cost behind what was
  /// sent before; else null.
  [[nodiscard]] outgoing_lane* open_lane(std::uint64_t number,
                                         std::size_t cost) noexcept {
    outgoing_lane* const l = lanes_.find(number);
    if (!l || l->is_blocked) return nullptr;
    MW_ASSERT(l->waiting.empty() && !l->granted,
              "a lane with sends that wait stands among the blocked ones");
    if (l->used_window + cost > core_.options.lane_window) return nullptr;
    if (core::is_own(number)) return l;
    return !others_come_first() && used_window_ + cost <= core_.peer_window ? l : nullptr;
  }
  /// Returns whether sends wait that may go on with the next step: another lane must not
  /// take their room (law 9).
  [[nodiscard]] bool others_come_first() const noexcept {
    return may_go_on_ && !blocked_.empty();
  }
  [[nodiscard]] std::uint64_t next_id() noexcept { return ++last_id_; }
  /// Returns the frame that announces `op`, with a new id and, if it is eager, its flags.
  [[nodiscard]] frame announcement(const outgoing_lane& l, const operation& op,
                                   bool eager);
  /// Accounts for a message that was sent whole and has ended.
  void note_accepted(outgoing_lane& l, std::size_t cost, std::size_t bytes) noexcept {
    l.used_window += cost;
    if (!core::is_own(l.number)) used_window_ += cost;
    ++l.sent;
    ++l.undelivered_messages;
    l.undelivered_bytes += bytes;
    ++core_.counters.messages_sent;
    core_.counters.bytes_sent += bytes;
  }
  /// Returns true if only the operation's end is left to do. Otherwise it ends later,
  /// as `how` or better.
  bool give_up(pending_send& p, ending how);
  void finish(pending_send& p, ending how);
  /// Puts a granted message that comes back first in its lane again.
  void requeue(pending_send& p);
  [[nodiscard]] pending_send* find(std::uint64_t id);
  template <class Visit>
  void for_each_pending(Visit&& visit) {
    for (auto& entry : pending_) visit(entry.second);
  }

  core& core_;
  /// Credit, room or the first of a lane has changed: waiting sends may go on.
  bool may_go_on_ = false;
  bool is_cut_short_ = false;
  /// A payload found no room in the table of offers.
  bool wants_offer_room_ = false;
  /// The first ready lane found no such room either.
  bool ready_lacks_offer_ = false;
  /// Pulled sends, in turns: a large message delays another lane by at most a slice.
  std::deque<pending_send*> active_;
  time_point active_since_{};
  /// Those that their receiver reads, too. It waits for none of them, so that they may
  /// rest for as long as they like.
  std::deque<pending_send*> helped_;

 private:
  static constexpr std::size_t idle_lanes_kept = 64;

  [[nodiscard]] std::size_t cost_of(const operation& op) const noexcept;
  [[nodiscard]] bool is_eager(const operation& op) const noexcept;
  /// Returns the same for a message that a receive waits for.
  [[nodiscard]] bool is_eager_if_granted(const operation& op) const noexcept;
  /// Returns whether an offer is small enough to be accepted before a receive: it is
  /// offered only because that is faster.
  [[nodiscard]] bool may_be_kept(const operation& op) const noexcept;
  /// Returns what holds a send up. Called once for each attempt: room that appears
  /// between two calls would not be noticed.
  [[nodiscard]] send_obstacle obstacle_to(const outgoing_lane& l,
                                          const operation& op) noexcept;
  void announce(outgoing_lane& l, operation& op);
  /// Announces `op` without a window, because a receive waits for it.
  void announce_granted(outgoing_lane& l, operation& op);
  pending_send& expect_end(const frame& f, operation& op);
  [[nodiscard]] operation& take_first(outgoing_lane& l);
  void note_obstacle(outgoing_lane& l, send_obstacle obstacle);
  /// Tells once that the first send of a lane waits for a receive.
  void ask(outgoing_lane& l);
  void stop_wanting(outgoing_lane& l) noexcept;
  void send_ready();
  void ask_again();
  void relax();
  void forget_if_idle(outgoing_lane& l);
  /// Returns whether only want of room has stopped it.
  [[nodiscard]] bool send_waiting(outgoing_lane& l);
  void stop_slices(pending_send& p);
  operation& release(pending_send& p);
  /// Ends a send of which the peer has everything.
  void end_taken(pending_send& p);

  lane_table<outgoing_lane> lanes_;
  std::deque<outgoing_lane*> blocked_;
  std::size_t waiting_ = 0;
  std::size_t used_window_ = 0;
  /// The number of wanting lanes.
  std::size_t wanting_ = 0;
  /// The peer was told of wanting lanes, and not yet that none is left.
  bool has_wanted_ = false;
  /// Wanting lanes for which a receive waits.
  std::deque<outgoing_lane*> ready_;
  /// The number of blocked lanes for which the peer is asked once more.
  std::size_t asks_left_ = 0;
  std::uint64_t last_id_ = 0;
  std::unordered_map<std::uint64_t, pending_send> pending_;
  std::size_t settling_ = 0;
  std::string closed_detail_;
};

}  // namespace manyworlds::inline v0::detail::host
