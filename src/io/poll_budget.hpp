// Poll budget: what an engine does in one poll before others have their turn.
#pragma once

#include <chrono>
#include <cstddef>

#include "manyworlds/coro/timer_queue.hpp"
#include "manyworlds/io/io_request.hpp"

namespace manyworlds::inline v0 {

/// What a send or receive moves at most.
[[nodiscard]] inline std::size_t bytes_of(const io_request& r) noexcept {
  std::size_t bytes = 0;
  for (std::size_t i = 0; i < r.buffer_count; ++i) bytes += r.buffers[i].iov_len;
  return bytes;
}

struct poll_budget {
  static constexpr std::size_t requests = 128;
  /// When so much is sent since the last poll, what else there is to send in bulk waits
  /// for the next, and when so much is received in one, what else there is to receive: a
  /// slice of each of many streams is more than a turn's worth.
  static constexpr std::size_t bytes = std::size_t{128} * 1024;
  /// To end a request takes up to 10 us: a connection is closed, or much is parsed.
  static constexpr duration time = std::chrono::microseconds(60);

  /// Small ones neither count nor wait behind others' bulk (law 9).
  [[nodiscard]] static bool is_bulk(const io_request& r) noexcept {
    constexpr std::size_t small = 4096;
    return r.kind == io_kind::send && bytes_of(r) > small;
  }
};

}  // namespace manyworlds::inline v0
