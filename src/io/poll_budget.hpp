// Poll budget: how much an engine does in one poll before other work has its turn.
#pragma once

#include <chrono>
#include <cstddef>

#include "io/io_request.hpp"
#include "manyworlds/detail/assertion.hpp"
#include "manyworlds/time.hpp"

namespace manyworlds::inline v0::detail {

/// Returns the number of bytes that a send, a receive or a read moves at most.
[[nodiscard]] inline std::size_t bytes_of(const io_request& r) noexcept {
  MW_ASSERT(r.buffers || r.buffer_count == 0, "a request with buffers points to them");
  std::size_t bytes = 0;
  for (std::size_t i = 0; i < r.buffer_count; ++i) bytes += r.buffers[i].iov_len;
  return bytes;
}

struct poll_budget {
  static constexpr std::size_t requests = 128;
  /// When as many bytes were sent since the last poll, further bulk sends wait for the
  /// next one. When as many were received in one poll, further receives wait too: a slice
  /// of each of many streams is more than a turn's worth.
  static constexpr std::size_t bytes = std::size_t{128} * 1024;
  /// What costs less than the system call that moves it.
  static constexpr std::size_t small = 4096;
  /// The end of a request takes up to 10 us: a connection is closed, or much is parsed.
  static constexpr duration time = std::chrono::microseconds(60);

  /// Returns true for bulk. Small sends neither count nor wait behind bulk (law 9).
  [[nodiscard]] static bool is_bulk(const io_request& r) noexcept {
    return r.kind == io_kind::send && bytes_of(r) > small;
  }
};

/// Counts what one pass of a poll has done, and says when it is enough.
template <class Clock>
class poll_limit {
 public:
  explicit poll_limit(const Clock& clock) noexcept : clock_(clock) {}

  /// Returns true if the pass must end before its next request. Looks at the clock only
  /// where one request follows another.
  [[nodiscard]] bool is_reached(std::size_t bytes = 0) noexcept {
    const std::size_t n = done_++;
    if (n == 1) until_ = clock_.now() + poll_budget::time;
    return n >= poll_budget::requests || bytes >= poll_budget::bytes ||
           (n > 1 && clock_.now() >= until_);
  }

 private:
  const Clock& clock_;
  std::size_t done_ = 0;
  time_point until_;
};

}  // namespace manyworlds::inline v0::detail
