// Receiver: the incoming half of one connection, without its socket: frames, windows,
// pulled payloads.
#pragma once

#include <sys/uio.h>

#include <array>
#include <cstdint>
#include <memory>
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

/// Bytes go through a small input buffer, but for what a receive waits for: that is read
/// straight into its memory, with the buffer behind it for the next frame.
class receiver {
 public:
  receiver(core& shared, rank_t peer, sender& answers, frame_handler& others);

  /// Where the next bytes go. Valid until `received`.
  [[nodiscard]] std::span<const iovec> entries();
  /// The request in flight ended with so many bytes. Null, or what is wrong with them.
  const char* received(std::size_t count);

  /// Of the matcher: asks for a payload; accounts for what was consumed.
  void pull(inbound_message& m);
  void consumed(inbound_message& m, bool was_received);

  /// As `backend::withdraw`, of a receive that takes `m`.
  bool withdraw(inbound_message& m);
  /// The request in flight should end early, so that a receive's memory is given back.
  [[nodiscard]] bool must_cancel() const noexcept { return sink_ && sink_->giving_up; }
  /// Ends receives that were given up while their memory was in the kernel's hands.
  void settle();
  /// Fails the receives that take something as closed, once the kernel lets go.
  void close(const std::string& detail);

  /// Returns credit: what is worth a frame by itself, or all of it.
  void return_credit(bool all);
  [[nodiscard]] bool owes_credit() const noexcept { return !owing_.empty(); }

  [[nodiscard]] bool has_begun() const noexcept { return !pulled_.empty(); }
  [[nodiscard]] bool is_stalled(time_point now) const;
  void restart_windows(time_point now);
  /// Nothing of what comes is looked at any more.
  void ignore_messages() noexcept { ignoring_ = true; }
  /// The peer's offers are void.
  void drop_offers();

 private:
  [[nodiscard]] const char* parse();
  [[nodiscard]] const char* handle(const frame& f, std::span<const std::byte> content);
  [[nodiscard]] const char* on_message(const frame& f,
                                       std::span<const std::byte> content);
  [[nodiscard]] const char* on_data(const frame& f);
  [[nodiscard]] const char* on_complete(const frame& f);
  [[nodiscard]] const char* on_withdraw(const frame& f);
  [[nodiscard]] const char* check_id(const frame& f) const;
  [[nodiscard]] inbound_message* find(std::uint64_t id);
  void fill_sink(std::size_t bytes, const std::byte* from);
  void answer(frame_kind kind, std::uint64_t id, std::uint32_t generation = 0);
  void unpull(inbound_message& m);

  core& core_;
  rank_t peer_;
  sender& answers_;
  frame_handler& others_;
  frame_limits limits_;
  bool ignoring_ = false;

  std::size_t capacity_;
  std::unique_ptr<std::byte[]> input_;
  std::size_t begin_ = 0;
  std::size_t end_ = 0;
  /// The rest of a slice: into a receive's memory, or nowhere.
  inbound_message* sink_ = nullptr;
  std::size_t sink_left_ = 0;
  std::size_t skip_left_ = 0;
  /// Of the request in flight: bytes of it that go to the sink.
  std::size_t direct_ = 0;
  static constexpr std::size_t sink_entries = 64;
  std::array<iovec, sink_entries + 1> entries_;

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
