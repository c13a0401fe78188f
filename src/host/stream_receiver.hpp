// Stream receiver: the incoming half over a byte stream.
#pragma once

#include <sys/uio.h>

#include <array>

#include "host/read_buffer.hpp"
#include "host/receiver.hpp"

namespace manyworlds::inline v0::detail::host {

/// Reads through a small input buffer. The rest of a slice that a receive waits for is
/// read straight into its memory, with the buffer behind it for the next frame.
class stream_receiver final : public receiver {
 public:
  stream_receiver(core& shared, rank_t peer, sender& answers, channel& owner);

  /// Returns where the next bytes go. Valid until `received`.
  [[nodiscard]] std::span<const iovec> entries();
  /// Called when the request in flight has ended. Returns null, or what is wrong with
  /// its bytes.
  const char* received(std::size_t count);
  /// Returns whether the request in flight should end early, to return a receive's
  /// memory.
  [[nodiscard]] bool must_cancel() const noexcept { return sink_ && sink_->giving_up; }
  /// Returns whether it has memory that goes back to the machine after a while.
  [[nodiscard]] bool is_large() const noexcept { return input_.is_touched(); }
  /// Returns whether that time has come.
  [[nodiscard]] bool is_due_to_rest(time_point now) const noexcept {
    return input_.may_rest(now);
  }
  /// Returns whether it waits for the begin of a frame.
  [[nodiscard]] bool is_between_frames() const noexcept {
    return begin_ == end_ && !sink_ && skip_left_ == 0;
  }

 private:
  [[nodiscard]] bool is_in_use(const inbound_message& m) const noexcept override {
    return sink_ == &m && direct_ > 0;
  }
  void let_go(inbound_message& m) noexcept override;
  [[nodiscard]] const char* parse();
  void fill_sink(std::size_t bytes, const std::byte* from);

  read_buffer input_;
  std::size_t begin_ = 0;
  std::size_t end_ = 0;
  /// The message that the rest of a slice belongs to; null if it is skipped.
  inbound_message* sink_ = nullptr;
  std::size_t sink_left_ = 0;
  std::size_t skip_left_ = 0;
  /// How many bytes of the request in flight go to the sink.
  std::size_t direct_ = 0;
  static constexpr std::size_t sink_entries = 64;
  std::array<iovec, sink_entries + 1> entries_;
};

}  // namespace manyworlds::inline v0::detail::host
