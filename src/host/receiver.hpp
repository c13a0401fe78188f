// Receiver: the incoming half of one connection, without what carries it: what frames
// mean, windows, pulled payloads.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "core.hpp"
#include "sender.hpp"

namespace manyworlds::inline v0::host {

/// Who is told of frames that are not about messages.
class frame_handler {
 public:
  /// Null, or what is wrong with the frame.
  virtual const char* handle(const frame& f) = 0;

 protected:
  ~frame_handler() = default;
};

class receiver {
 public:
  receiver(core& shared, rank_t peer, sender& answers, frame_handler& others,
           const frame_limits& limits) noexcept
      : core_(shared),
        peer_(peer),
        answers_(answers),
        limits_(limits),
        others_(others),
        worth_saying_(shared.options.lane_window / 2) {}
  receiver(const receiver&) = delete;
  receiver& operator=(const receiver&) = delete;
  virtual ~receiver() { set_tight(false); }

  /// Of the matcher: has the payload brought; accounts for what was consumed.
  void pull(inbound_message& m);
  void consumed(inbound_message& m, bool was_received);

  /// As `backend::withdraw`, of a receive that takes `m`.
  bool withdraw(inbound_message& m);
  /// Ends receives that were given up while their memory was in the kernel's hands.
  void settle();
  /// Fails the receives that take something as closed, once the kernel lets go.
  void close(const std::string& detail);

  /// Returns credit: what is worth a frame by itself, or all of it. Says for which of the
  /// peer's sends that wait for the window a receive waits.
  void return_credit(bool all) {
    if (owes_answer() || (all && !owing_.empty())) return_owed(all);
  }
  /// Credit that is worth a frame by itself, or that the peer waits for.
  [[nodiscard]] bool owes_answer() const noexcept { return owed_bytes_ >= worth_saying_; }

  /// Lanes may be ready of which nothing could be said while the answers found no room.
  [[nodiscard]] bool owes_readiness() const noexcept { return worth_saying_ == 0; }

  /// Of the matcher, while the peer waits for the window: a receive or an arrival waits.
  void note_posted(const operation& op);
  /// A lane has no message left, and perhaps receives that wait.
  void note_ready(std::uint64_t lane_number);

  /// Drops what is here on a lane that was discarded, but for what a receive is taking.
  void discard(inbound_lane& l);

  [[nodiscard]] bool has_begun() const noexcept { return !pulled_.empty(); }
  [[nodiscard]] bool is_stalled(time_point now) const;
  void restart_windows(time_point now);
  /// Nothing of what comes is looked at any more.
  void ignore_messages() noexcept { ignoring_ = true; }
  /// The peer's offers are void.
  void drop_offers();

 protected:
  /// The rest of a slice of `m` is being written into its taker's memory by the kernel.
  [[nodiscard]] virtual bool is_in_use(const inbound_message& m) const noexcept = 0;
  /// What comes of `m` from now on goes nowhere.
  virtual void let_go(inbound_message& m) noexcept = 0;
  /// Has the payload of `m` brought; stops that. The sender is asked, unless told
  /// otherwise.
  virtual void begin(inbound_message& m);
  virtual void stop(inbound_message& m);

  [[nodiscard]] const char* handle(const frame& f, std::span<const std::byte> content);
  /// Null and `into` if a slice follows that somebody waits for; `into` is null if it is
  /// to be dropped.
  [[nodiscard]] const char* on_data(const frame& f, inbound_message*& into);
  /// So many bytes of `m` are where they belong.
  void note_progress(inbound_message& m, std::size_t bytes) noexcept;
  void answer(frame_kind kind, std::uint64_t id, std::uint32_t generation = 0);
  /// Has the payload of an offer brought that no receive waits for.
  void collect(inbound_message& m);
  /// All of `m` is where it belongs.
  void complete(inbound_message& m);
  [[nodiscard]] inbound_message* find(std::uint64_t id);
  /// The sender gave up `m`.
  void drop(inbound_message& m);

  core& core_;
  const rank_t peer_;
  sender& answers_;
  const frame_limits limits_;
  /// What has just come, until it is taken or kept. A carrier says where an offer's
  /// payload lies before it hands on the frame.
  inbound_message arriving_;

 private:
  [[nodiscard]] const char* on_message(const frame& f,
                                       std::span<const std::byte> content);
  /// Nobody takes an offer any more that may be kept.
  virtual void note_untaken(const inbound_message&) {}
  [[nodiscard]] const char* on_complete(const frame& f);
  [[nodiscard]] const char* on_withdraw(const frame& f);
  [[nodiscard]] const char* check_id(const frame& f) const;
  [[nodiscard]] const char* on_want(const frame& f);
  void set_tight(bool tight);
  void say_ready();
  /// Gives up the receive that takes `m`, and says so if it discards its lane.
  void give_up(inbound_message& m);
  void unpull(inbound_message& m);
  /// What no receive takes, and must not stay: it was granted, or its lane is discarded.
  void dismiss(inbound_message& m);
  void remove(inbound_message& m, frame_kind answered);
  void return_owed(bool all);

  frame_handler& others_;
  bool ignoring_ = false;
  std::uint64_t last_id_ = 0;
  /// Messages that later frames may name.
  std::unordered_map<std::uint64_t, inbound_message*> named_;
  std::vector<inbound_message*> pulled_;
  std::size_t held_bytes_ = 0;
  std::size_t owed_bytes_ = 0;
  std::vector<inbound_lane*> owing_;
  /// From so much credit on it is returned at once.
  std::size_t worth_saying_;
  /// Credit is returned with the next answer, however little it is.
  bool owes_now_ = false;
  /// Sends of the peer wait for the window that all lanes share.
  bool is_tight_ = false;
  /// Lanes on which a receive may wait for such a send.
  std::vector<std::uint64_t> ready_;
  bool ready_for_fresh_ = false;
  /// The peer has to ask again for all its lanes.
  bool ready_for_all_ = false;
  /// Messages that the peer may send without a window: at most.
  std::uint64_t grants_ = 0;
  std::string closed_detail_;
};

}  // namespace manyworlds::inline v0::host
