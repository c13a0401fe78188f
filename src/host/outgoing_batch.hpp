// Outgoing batch: what one channel sends next, as one gather list: frames, then
// perhaps one slice of a user's memory.
#pragma once

#include <sys/uio.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>

#include "host/byte_queue.hpp"
#include "host/frame.hpp"
#include "manyworlds/detail/assertion.hpp"
#include "memory/view_cursor.hpp"

namespace manyworlds::inline v0::detail::host {

/// Queues frames while the previous batch is sent. A batch is sent to its last byte:
/// what the peer reads stays framed, even if the user takes the slice's memory back
/// half way.
class outgoing_batch {
 public:
  // Queueing for the next batch.
  void append(const frame& f) { append(std::span<const std::byte>(encode(f))); }
  void append(std::span<const std::byte> content) {
    queued_.append(content);
    appended_ += content.size();
  }
  /// Makes room for that much more.
  void reserve(std::size_t bytes) { queued_.reserve(queued_.size() + bytes); }
  [[nodiscard]] std::size_t queued_bytes() const noexcept { return queued_.size(); }
  /// `appended` counts the bytes of all frames that were ever queued, and `gone` those
  /// that the kernel has surely taken. A slice's bytes are not counted: a peer that
  /// reads no more delays them, but not what stood before them.
  [[nodiscard]] std::uint64_t appended() const noexcept { return appended_; }
  [[nodiscard]] std::uint64_t gone() const noexcept {
    return is_open() ? gone_ : opened_;
  }

  /// Returns whether a batch is begun and not sent whole.
  [[nodiscard]] bool is_open() const noexcept { return left_ > 0; }

  /// Opens a batch of what is queued. Precondition: none is open.
  void open();
  /// Opens a batch with at most `limit` bytes of a slice behind what is queued, in a
  /// data frame like `data` with its length. Moves the cursor past the slice. If
  /// that reaches the end, `last` follows. Precondition: none is open.
  void open_with_slice(frame data, const_view_cursor& cursor, std::size_t limit,
                       const frame& last);

  [[nodiscard]] std::span<const iovec> entries() const noexcept {
    return {entries_.data() + first_, count_ - first_};
  }
  /// Notes that the kernel has taken this many bytes.
  void advance(std::size_t bytes) noexcept;

  /// Returns whether the open batch still refers to the user's memory.
  [[nodiscard]] bool reads_user_memory() const noexcept { return user_left_ > 0; }
  /// Replaces the user's memory by zeros. Drops the frame behind the slice, so that the
  /// peer does not take the zeros for a message.
  void release_user_memory() noexcept;

  /// Gives memory back if nothing is queued or open.
  void shrink() noexcept;
  [[nodiscard]] bool is_large() const noexcept {
    return queued_.capacity() + sending_.capacity() > small_capacity;
  }

 private:
  static constexpr std::size_t slice_entries = 128;
  static constexpr std::size_t small_capacity = 8 * 1024;

  void push(const void* data, std::size_t bytes) noexcept {
    MW_ASSERT(count_ < entries_.size(), "a batch has a bounded number of entries");
    MW_ASSERT(data != nullptr && bytes > 0, "each entry of a batch has bytes");
    entries_[count_++] = {const_cast<void*>(data), bytes};
    left_ += bytes;
  }

  byte_queue queued_;
  byte_queue sending_;
  std::uint64_t appended_ = 0;
  std::uint64_t opened_ = 0;  ///< up to the end of the newest batch
  std::uint64_t gone_ = 0;    ///< while it is open
  bool has_zeros_ = false;    ///< zeros are not counted apart from frames
  std::array<iovec, 2 + slice_entries> entries_;
  std::size_t first_ = 0;
  std::size_t count_ = 0;
  std::size_t left_ = 0;
  // The slice is the user's bytes of the batch, ahead of the last `behind_user_`.
  std::size_t user_left_ = 0;
  std::size_t behind_user_ = 0;
};

}  // namespace manyworlds::inline v0::detail::host
