// Sender: the outgoing half of one connection, without what carries it: lanes, windows,
// offers, and how sends end.
#pragma once

#include <cstdint>
#include <deque>
#include <string>
#include <unordered_map>

#include "../link/offer_table.hpp"
#include "core.hpp"
#include "frame.hpp"
#include "lane_table.hpp"
#include "manyworlds/memory/view_cursor.hpp"

namespace manyworlds::inline v0::host {

/// Head and payload of a send.
[[nodiscard]] inline std::size_t whole_bytes(const operation& op) noexcept {
  return op.head_bytes + op.source.total_bytes();
}

struct outgoing_lane {
  std::uint64_t number = 0;
  operation_queue waiting;
  bool is_blocked = false;  ///< stands in the sender's list of lanes with waiting sends
  std::size_t used_window = 0;  ///< sent and not credited
  std::uint64_t sent = 0;
  std::uint64_t undelivered_messages = 0;
  std::size_t undelivered_bytes = 0;
};

/// A send whose end depends on the peer: an offer, or an eager message that is to be
/// delivered.
struct pending_send {
  enum class phase : std::uint8_t {
    offered,  ///< nobody pulls it
    pulled,   ///< its slices are being sent
    sent,     ///< nothing is left to send
  };
  enum class ending : std::uint8_t { no, taken, withdrawn, closed };

  std::uint64_t id = 0;
  operation* op = nullptr;
  phase at = phase::offered;
  bool eager = false;
  std::uint32_t generation = 0;
  const_view_cursor cursor;
  /// Over shared memory: decides between the receiver's taking and our giving up.
  shm::offer_ticket ticket;
  /// How it ends once the kernel has let go of the user's memory, or the peer has
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
  /// As `backend::withdraw`.
  bool withdraw(operation& op);
  /// Ends everything as closed, at once or when the kernel lets go, and tells the peer.
  void close(const std::string& detail);

  // What the peer says. Null, or what is wrong with it.
  const char* on_pull(const frame& f);
  const char* on_unpull(const frame& f);
  const char* on_taken(const frame& f);
  const char* on_accepted(const frame& f);
  const char* on_withdrawn(const frame& f);
  const char* on_credit(const frame& f);

  /// Sends a frame without content, in order, however full everything is.
  virtual void control(const frame& f) = 0;
  /// Frames or slices wait to be sent.
  [[nodiscard]] virtual bool has_something() const noexcept = 0;

  /// Nothing waits, nothing is pending.
  [[nodiscard]] bool is_drained() const noexcept {
    return waiting_ == 0 && pending_.empty();
  }
  [[nodiscard]] bool has_begun() const noexcept { return !active_.empty(); }
  /// Since when, if it has.
  [[nodiscard]] time_point active_since() const noexcept { return active_since_; }
  [[nodiscard]] bool is_settling() const noexcept { return settling_ > 0; }
  void settle_overdue(time_point now);

  template <class Visit>
  void for_each_lane(Visit&& visit) const {
    lanes_.for_each(visit);
  }

 protected:
  // What carries the frames.
  /// The largest message, head included, that may be sent unasked.
  [[nodiscard]] virtual std::size_t eager_limit() const noexcept = 0;
  /// No message can be announced now. It is asked again when that may have changed.
  [[nodiscard]] virtual bool is_full() noexcept = 0;
  /// Announces `op`: its head goes along, and if it is eager its payload. `p` is set if
  /// its end depends on the peer.
  virtual void put(const frame& f, const operation& op, pending_send* p) = 0;
  /// The memory of `p` is in the kernel's hands.
  [[nodiscard]] virtual bool is_in_use(const pending_send& p) const noexcept = 0;
  /// Decides for good that the peer does not get an offer; false if it has it.
  [[nodiscard]] virtual bool revoke(pending_send& p) noexcept = 0;
  /// The peer says that it has the offer, of which nothing was sent. Null, or what is
  /// wrong with that.
  [[nodiscard]] virtual const char* check_taken(const pending_send& p) const noexcept = 0;
  /// `p` is about to be forgotten.
  virtual void forget(pending_send& p) noexcept = 0;

  void send_all_waiting();
  /// True if nothing but the operation's end is left to do; else it ends later, as `how`
  /// or better.
  bool give_up(pending_send& p, ending how);
  void finish(pending_send& p, ending how);
  [[nodiscard]] pending_send* find(std::uint64_t id);
  template <class Visit>
  void for_each_pending(Visit&& visit) {
    for (auto& entry : pending_) visit(entry.second);
  }

  core& core_;
  /// Something changed for which sends wait: credit, room, or who is first.
  bool may_go_on_ = false;
  /// Pulled, in turns: a large message does not delay another lane's by more than a
  /// slice.
  std::deque<pending_send*> active_;
  time_point active_since_{};

 private:
  static constexpr std::size_t idle_lanes_kept = 64;

  [[nodiscard]] std::size_t cost_of(const operation& op) const noexcept;
  [[nodiscard]] bool is_eager(const operation& op) const noexcept;
  /// Offered because that is faster, but small enough to be accepted before a receive.
  [[nodiscard]] bool may_be_kept(const operation& op) const noexcept;
  [[nodiscard]] bool has_window(const outgoing_lane& l,
                                const operation& op) const noexcept;
  void announce(outgoing_lane& l, operation& op);
  /// True if it was stopped by want of room alone.
  [[nodiscard]] bool send_waiting(outgoing_lane& l);
  void stop_slices(pending_send& p);
  operation& release(pending_send& p);
  /// The peer has all of it.
  void end_taken(pending_send& p);

  lane_table<outgoing_lane> lanes_;
  std::deque<outgoing_lane*> blocked_;
  std::size_t waiting_ = 0;
  std::size_t used_window_ = 0;
  std::uint64_t last_id_ = 0;
  std::unordered_map<std::uint64_t, pending_send> pending_;
  std::size_t settling_ = 0;
  std::string closed_detail_;
};

}  // namespace manyworlds::inline v0::host
