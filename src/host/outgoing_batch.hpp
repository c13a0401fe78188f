// Outgoing batch: what one connection sends next, as one gather list: frames, then
// perhaps one slice of a user's memory.
#pragma once

#include <sys/uio.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>

#include "byte_queue.hpp"
#include "frame.hpp"
#include "manyworlds/memory/view_cursor.hpp"

namespace manyworlds::inline v0::host {

/// Frames queue here while the batch before is sent. A batch is sent to its last byte:
/// what the peer reads stays framed, also when the user takes the slice's memory back
/// half way.
class outgoing_batch {
 public:
  // Queueing for the next batch.
  void append(const frame& f) { append(std::span<const std::byte>(encode(f))); }
  void append(std::span<const std::byte> content) {
    queued_.append(content);
    appended_ += content.size();
  }
  [[nodiscard]] std::size_t queued_bytes() const noexcept { return queued_.size(); }
  /// All frames that were ever queued, in bytes, and how much of that the kernel has
  /// surely taken. A slice's bytes are not counted: a peer that reads no more holds them
  /// up, and not what stood before them.
  [[nodiscard]] std::uint64_t appended() const noexcept { return appended_; }
  [[nodiscard]] std::uint64_t gone() const noexcept {
    return is_open() ? gone_ : opened_;
  }

  /// Whether a batch is begun and not sent whole.
  [[nodiscard]] bool is_open() const noexcept { return left_ > 0; }

  /// Opens a batch of what is queued. Only if none is open.
  void open();
  /// Opens one with a slice behind what is queued, at most `limit` bytes, in a data frame
  /// like `data` (whose length is set). The cursor moves past it. If it reaches the end,
  /// `last` follows.
  void open_with_slice(frame data, const_view_cursor& cursor, std::size_t limit,
                       const frame& last);

  [[nodiscard]] std::span<const iovec> entries() const noexcept {
    return {entries_.data() + first_, count_ - first_};
  }
  /// The kernel has taken this many bytes.
  void advance(std::size_t bytes) noexcept;

  /// Whether the open batch still refers to the user's memory.
  [[nodiscard]] bool reads_user_memory() const noexcept { return user_left_ > 0; }
  /// Zeros in its place; the frame behind the slice is dropped, so that the peer does not
  /// take the zeros for a message.
  void release_user_memory() noexcept;

  /// Gives memory back while nothing is queued or open.
  void shrink() noexcept;
  [[nodiscard]] bool is_large() const noexcept {
    return queued_.capacity() + sending_.capacity() > small_capacity;
  }

 private:
  static constexpr std::size_t slice_entries = 128;
  static constexpr std::size_t small_capacity = 8 * 1024;

  void push(const void* data, std::size_t bytes) noexcept {
    entries_[count_++] = {const_cast<void*>(data), bytes};
    left_ += bytes;
  }

  byte_queue queued_;
  byte_queue sending_;
  std::uint64_t appended_ = 0;
  std::uint64_t opened_ = 0;  ///< up to the end of the newest batch
  std::uint64_t gone_ = 0;    ///< while it is open
  bool has_zeros_ = false;    ///< which are not told from frames
  std::array<iovec, 2 + slice_entries> entries_;
  std::size_t first_ = 0;
  std::size_t count_ = 0;
  std::size_t left_ = 0;
  // The slice is the bytes of the batch before the last `behind_user_`.
  std::size_t user_left_ = 0;
  std::size_t behind_user_ = 0;
};

}  // namespace manyworlds::inline v0::host
