// Sender: the outgoing half of one connection, without its socket: lanes, windows,
// offers, slices.
#pragma once

#include <cstdint>
#include <deque>
#include <string>
#include <unordered_map>

#include "core.hpp"
#include "outgoing_batch.hpp"

namespace manyworlds::inline v0::host {

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
  /// How it ends once the kernel has let go of the user's memory, or the peer has
  /// answered.
  ending wanted = ending::no;
  time_point settle_by = time_point::max();
};

class sender {
  using phase = pending_send::phase;
  using ending = pending_send::ending;

 public:
  explicit sender(core& shared) noexcept : core_(shared) {}

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
  const char* on_withdrawn(const frame& f);
  const char* on_credit(const frame& f);

  // What is sent.
  void control(const frame& f) { batch_.append(f); }
  /// Opens the next batch if there is anything to send; true if one is open.
  bool next_batch();
  [[nodiscard]] outgoing_batch& batch() noexcept { return batch_; }
  /// The request ended; the kernel took bytes, or none.
  void sent(std::size_t count);
  /// The request in flight should end early, so that memory is given back.
  [[nodiscard]] bool must_cancel() const noexcept {
    return source_ && source_->wanted != ending::no && source_->wanted != ending::taken;
  }

  [[nodiscard]] bool has_something() const noexcept {
    return batch_.queued_bytes() > 0 || !active_.empty();
  }
  /// Nothing waits, nothing is pending.
  [[nodiscard]] bool is_drained() const noexcept {
    return waiting_ == 0 && pending_.empty();
  }
  [[nodiscard]] bool has_begun() const noexcept { return !active_.empty(); }
  [[nodiscard]] bool is_settling() const noexcept { return settling_ > 0; }
  void settle_overdue(time_point now);

  template <class Visit>
  void for_each_lane(Visit&& visit) const {
    for (const auto& entry : lanes_) visit(entry.second);
  }

 private:
  static constexpr std::size_t idle_lanes_kept = 64;

  [[nodiscard]] static std::size_t cost_of(const operation& op, bool eager) noexcept;
  [[nodiscard]] bool is_eager(const operation& op) const noexcept;
  [[nodiscard]] bool may_send(const outgoing_lane& l, const operation& op) const noexcept;
  void announce(outgoing_lane& l, operation& op);
  void send_waiting(outgoing_lane& l);
  void send_all_waiting();
  [[nodiscard]] pending_send* find(std::uint64_t id);
  void stop_slices(pending_send& p);
  bool give_up(pending_send& p, ending how);
  operation& release(pending_send& p);
  void finish(pending_send& p, ending how);

  core& core_;
  outgoing_batch batch_;
  /// Whose memory the open batch refers to.
  pending_send* source_ = nullptr;
  std::unordered_map<std::uint64_t, outgoing_lane> lanes_;
  std::deque<outgoing_lane*> blocked_;
  /// Something changed for which sends wait: credit, room, or who is first.
  bool may_go_on_ = false;
  std::size_t waiting_ = 0;
  std::size_t used_window_ = 0;
  std::uint64_t last_id_ = 0;
  std::unordered_map<std::uint64_t, pending_send> pending_;
  /// Pulled, in turns: a large message does not delay another lane's by more than a
  /// slice.
  std::deque<pending_send*> active_;
  std::size_t settling_ = 0;
  std::string closed_detail_;
};

}  // namespace manyworlds::inline v0::host
