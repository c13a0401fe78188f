// Simulated pipe: one direction of a simulated connection.
#pragma once

#include <sys/uio.h>

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <deque>
#include <vector>

#include "manyworlds/detail/assertion.hpp"
#include "manyworlds/time.hpp"

namespace manyworlds::inline v0::detail {

enum class segment_kind : unsigned char { data, established, end, reset };

/// A unit that travels. The bytes themselves stay in the pipe; a segment of data says how
/// many have left.
struct simulated_segment {
  segment_kind kind;
  std::size_t bytes;
  time_point arrival;
};

/// The bytes of one direction in order: first those that have arrived and are unread,
/// then those on the wire, then those that wait in the sender's buffer.
class simulated_pipe {
 public:
  [[nodiscard]] std::size_t unread() const noexcept { return unread_; }
  [[nodiscard]] std::size_t flying() const noexcept { return flying_; }
  [[nodiscard]] std::size_t unsent() const noexcept {
    MW_ASSERT(unread_ + flying_ <= size(), "what has left is in the pipe");
    return size() - unread_ - flying_;
  }

  /// Copies up to `most` bytes in. Returns how many.
  std::size_t write(const iovec* buffers, std::size_t count, std::size_t most);
  /// Copies up to `most` of the unread bytes out. Returns how many.
  std::size_t read(const iovec* buffers, std::size_t count, std::size_t most);

  void depart(std::size_t bytes) noexcept {
    MW_ASSERT(bytes <= unsent(), "only unsent bytes depart");
    flying_ += bytes;
  }
  void land(std::size_t bytes) noexcept {
    MW_ASSERT(bytes <= flying_, "only bytes on the wire land");
    flying_ -= bytes;
    unread_ += bytes;
  }
  void discard_unread() noexcept {
    head_ += unread_;
    unread_ = 0;
  }
  void discard_unsent() { bytes_.resize(bytes_.size() - unsent()); }

  std::deque<simulated_segment> flight;
  time_point wire_free{};  ///< when the last byte that has left was on the wire
  bool end_wanted = false;
  bool end_sent = false;
  bool end_arrived = false;
  bool reset_sent = false;

 private:
  [[nodiscard]] std::size_t size() const noexcept {
    MW_ASSERT(head_ <= bytes_.size(), "what was read was in the pipe");
    return bytes_.size() - head_;
  }

  std::vector<std::byte> bytes_;
  std::size_t head_ = 0;
  std::size_t unread_ = 0;
  std::size_t flying_ = 0;
};

// ---------------------------------------------------------------------------------------

inline std::size_t simulated_pipe::write(const iovec* buffers, std::size_t count,
                                         std::size_t most) {
  if (head_ > 64 * 1024 && head_ > bytes_.size() / 2) {
    bytes_.erase(bytes_.begin(), bytes_.begin() + static_cast<std::ptrdiff_t>(head_));
    head_ = 0;
  }
  const std::size_t all = most;
  for (; count > 0 && most > 0; ++buffers, --count) {
    const auto* from = static_cast<const std::byte*>(buffers->iov_base);
    const std::size_t part = std::min(most, buffers->iov_len);
    bytes_.insert(bytes_.end(), from, from + part);
    most -= part;
  }
  return all - most;
}

inline std::size_t simulated_pipe::read(const iovec* buffers, std::size_t count,
                                        std::size_t most) {
  most = std::min(most, unread_);
  const std::size_t all = most;
  for (; count > 0 && most > 0; ++buffers, --count) {
    const std::size_t part = std::min(most, buffers->iov_len);
    if (part == 0) continue;
    std::memcpy(buffers->iov_base, bytes_.data() + head_, part);
    head_ += part;
    unread_ -= part;
    most -= part;
  }
  return all - most;
}

}  // namespace manyworlds::inline v0::detail
