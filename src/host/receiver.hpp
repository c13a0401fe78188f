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
      : core_(shared), peer_(peer), answers_(answers), limits_(limits), others_(others) {}
  receiver(const receiver&) = delete;
  receiver& operator=(const receiver&) = delete;
  virtual ~receiver() = default;

  /// Of the matcher: has the payload brought; accounts for what was consumed.
  void pull(inbound_message& m);
  void consumed(inbound_message& m, bool was_received);

  /// As `backend::withdraw`, of a receive that takes `m`.
  bool withdraw(inbound_message& m);
  /// Ends receives that were given up while their memory was in the kernel's hands.
  void settle();
  /// Fails the receives that take something as closed, once the kernel lets go.
  void close(const std::string& detail);

  /// Returns credit: what is worth a frame by itself, or all of it.
  void return_credit(bool all) {
    if (all ? owed_bytes_ > 0 : owes_credit()) return_owed(all);
  }
  /// Credit that is worth a frame by itself.
  [[nodiscard]] bool owes_credit() const noexcept {
    return owed_bytes_ >= core_.options.lane_window / 2;
  }

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
  void unpull(inbound_message& m);
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
  std::string closed_detail_;
};

}  // namespace manyworlds::inline v0::host
