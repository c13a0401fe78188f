// Receiver: the transport-independent incoming half of one channel: what frames
// mean, windows, pulled payloads.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "host/core.hpp"
#include "host/sender.hpp"

namespace manyworlds::inline v0::detail::host {

class channel;

class receiver {
 public:
  receiver(core& shared, rank_t peer, sender& answers, channel& owner,
           const frame_limits& limits) noexcept
      : core_(shared),
        peer_(peer),
        answers_(answers),
        limits_(limits),
        owner_(owner),
        worth_saying_(shared.options.lane_window / 2) {}
  receiver(const receiver&) = delete;
  receiver& operator=(const receiver&) = delete;
  virtual ~receiver() { set_tight(false); }

  /// The matcher's calls: they bring the payload, and account for what was consumed.
  void pull(inbound_message& m);
  void consumed(inbound_message& m, bool was_received);

  /// Withdraws a receive that takes `m`, as `backend::withdraw` does.
  bool withdraw(inbound_message& m);
  /// Ends receives that were given up while the kernel held their memory.
  void settle();
  /// Fails the receives that take a message as closed, once the kernel lets go.
  void close(const std::string& detail);
  /// A message was lost, or may have been: what has come behind it is not handed on.
  void cut_short() noexcept { is_cut_short_ = true; }

  /// Returns the credit that is worth a frame, or all of it. Tells the peer for which
  /// of its sends that wait for the window a receive waits.
  void return_credit(bool all) {
    if (owes_answer() || credit_waits_ || (all && !owing_.empty())) return_owed(all);
  }
  /// Returns whether there is credit that is worth a frame, or that the peer waits for.
  [[nodiscard]] bool owes_answer() const noexcept { return owed_bytes_ >= worth_saying_; }

  /// Returns whether credit or ready lanes could not be told while the answers found no
  /// room. Credit that is merely not worth a frame yet waits for the timer.
  [[nodiscard]] bool owes_what_found_no_room() const noexcept {
    return credit_waits_ || worth_saying_ == 0;
  }

  /// Called by the matcher when a receive or an arrival waits, while the peer waits for
  /// the window.
  void note_posted(const operation& op);
  /// Called when a lane has no message left, and perhaps waiting receives.
  void note_ready(std::uint64_t lane_number);

  /// Drops what is here on a discarded lane, except what a receive is taking.
  void discard(inbound_lane& l);

  /// Returns whether what this side answers finds no room. What need not be said is not
  /// said then, so that no peer makes it pile up.
  [[nodiscard]] bool is_backed_up() const noexcept { return answers_.is_backed_up(); }

  [[nodiscard]] bool has_begun() const noexcept { return !pulled_.empty(); }
  [[nodiscard]] bool is_stalled(time_point now) const;
  void restart_windows(time_point now);
  /// Ignores all messages that come afterwards.
  void ignore_messages() noexcept { ignoring_ = true; }
  /// Drops the peer's offers, which are void.
  void drop_offers();

 protected:
  /// Returns whether the kernel is writing the rest of a slice of `m` into its taker's
  /// memory.
  [[nodiscard]] virtual bool is_in_use(const inbound_message& m) const noexcept = 0;
  /// Discards what comes of `m` afterwards.
  virtual void let_go(inbound_message& m) noexcept = 0;
  /// Has the payload of `m` brought. It asks the sender unless overridden.
  virtual void begin(inbound_message& m) { ask(m); }
  /// Tells a sender that was asked for `m` to stop.
  void stop(inbound_message& m);
  /// Asks the sender for slices of `m`; `how` is the word of that frame.
  void ask(inbound_message& m, std::uint64_t how = 0);

  [[nodiscard]] const char* handle(const frame& f, std::span<const std::byte> content);
  /// Returns whether the next message has this number and is not ignored.
  [[nodiscard]] bool is_next(std::uint64_t id) const noexcept {
    return id == last_id_ + 1 && !ignoring_;
  }
  /// Returns whether the windows have room for a message of that cost.
  [[nodiscard]] bool is_within_windows(const inbound_lane& l,
                                       std::size_t cost) const noexcept {
    return l.held_bytes + cost <= core_.options.lane_window &&
           (core::is_own(l.number) || held_bytes_ + cost <= core_.peer_window);
  }
  /// Accounts for a message that has gone to its receive without ever being kept.
  void note_passed_on(inbound_lane& l, std::size_t cost, std::size_t content);
  /// Returns null, or what is wrong with the slice. `into` is set if a message awaits
  /// it, and is null if the slice is to be dropped.
  [[nodiscard]] const char* on_data(const frame& f, inbound_message*& into);
  /// Notes that `bytes` more of `m` are in their place.
  void note_progress(inbound_message& m, std::size_t bytes) noexcept;
  void answer(frame_kind kind, std::uint64_t id, std::uint32_t generation = 0);
  /// Has the payload of an offer brought for which no receive waits.
  void collect(inbound_message& m);
  /// Called when all of `m` is in its place.
  void complete(inbound_message& m);
  [[nodiscard]] inbound_message* find(std::uint64_t id);
  /// Called when the sender has given up `m`.
  void drop(inbound_message& m);

  core& core_;
  const rank_t peer_;
  sender& answers_;
  const frame_limits limits_;
  /// The message that has just come, until it is taken or kept. A transport says where
  /// an offer's payload lies before it hands on the frame.
  inbound_message arriving_;
  bool is_cut_short_ = false;

 private:
  [[nodiscard]] const char* on_message(const frame& f,
                                       std::span<const std::byte> content);
  /// Called when no receive takes an offer that may be kept.
  virtual void note_untaken(const inbound_message&) {}
  [[nodiscard]] const char* on_complete(const frame& f);
  [[nodiscard]] const char* on_withdraw(const frame& f);
  [[nodiscard]] const char* check_id(const frame& f) const;
  [[nodiscard]] const char* on_want(const frame& f);
  void set_tight(bool tight);
  void say_ready();
  /// Gives up the receive that takes `m`; discards the lane if the receive asks for
  /// that.
  void give_up(inbound_message& m);
  void unpull(inbound_message& m);
  /// Removes a message that no receive takes if it must not stay: it was granted, or
  /// its lane is discarded.
  void dismiss(inbound_message& m);
  void remove(inbound_message& m, frame_kind answered);
  /// Notes credit for what a lane no longer holds.
  void owe(inbound_lane& l, std::size_t cost, std::size_t content,
           std::uint64_t messages);
  void return_owed(bool all);
  /// All credit goes with the next look.
  void return_soon() noexcept {
    owes_now_ = true;
    worth_saying_ = std::min<std::size_t>(worth_saying_, 1);
  }

  channel& owner_;
  bool ignoring_ = false;
  std::uint64_t last_id_ = 0;
  /// The messages that later frames may name.
  std::unordered_map<std::uint64_t, inbound_message*> named_;
  std::vector<inbound_message*> pulled_;
  std::size_t held_bytes_ = 0;
  std::size_t owed_bytes_ = 0;
  std::vector<inbound_lane*> owing_;
  /// How many lanes owe credit before all of it is returned.
  static constexpr std::size_t most_owing = 256;
  /// Credit of at least this much is returned at once.
  std::size_t worth_saying_;
  /// All credit is returned with the next answer.
  bool owes_now_ = false;
  /// Credit was due while the answers found no room.
  bool credit_waits_ = false;
  /// Sends of the peer wait for the window that all lanes share.
  bool is_tight_ = false;
  /// Lanes on which a receive may wait for such a send.
  std::vector<std::uint64_t> ready_;
  bool ready_for_fresh_ = false;
  /// The peer has to ask again for all its lanes.
  bool ready_for_all_ = false;
  /// The most messages that the peer may send without a window.
  std::uint64_t grants_ = 0;
  std::string closed_detail_;
};

}  // namespace manyworlds::inline v0::detail::host
