// Remote cursor: walks an offered payload in its sender's memory.
#pragma once

#include <sys/uio.h>

#include <array>
#include <cstddef>
#include <span>

#include "../link/remote_memory.hpp"
#include "cell_frame.hpp"
#include "manyworlds/memory/buffer_view.hpp"

namespace manyworlds::inline v0::host {

/// Everything here is what a peer says of its own memory: whatever it says, only that
/// memory is read, and no more of it than the message has bytes.
class remote_cursor {
 public:
  remote_cursor(const remote_payload& where, std::size_t bytes) noexcept
      : where_(where), remaining_(bytes) {
    if (where.views > 0) return;
    window_[0] = {reinterpret_cast<void*>(where.address), bytes};
    in_window_ = 1;
  }

  [[nodiscard]] std::size_t remaining() const noexcept { return remaining_; }

  /// The next pieces, at most `entries` many and `limit` bytes. None: the views end
  /// before the payload does, or cannot be read (`error` is set).
  [[nodiscard]] std::size_t fill(const shm::remote_memory& from, std::span<iovec> entries,
                                 std::size_t limit, int& error);
  void advance(std::size_t bytes) noexcept;

 private:
  static constexpr std::size_t window_size = 64;

  [[nodiscard]] bool fetch(const shm::remote_memory& from, int& error);

  remote_payload where_;
  std::size_t remaining_;
  std::uint64_t fetched_ = 0;
  std::array<iovec, window_size> window_;
  std::size_t first_ = 0;
  std::size_t in_window_ = 0;
};

}  // namespace manyworlds::inline v0::host
