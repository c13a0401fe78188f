// Remote cursor: walks an offered payload in its sender's memory.
#pragma once

#include <sys/uio.h>

#include <cstddef>
#include <span>

#include "host/cell_frame.hpp"
#include "host/piece_window.hpp"
#include "link/remote_memory.hpp"
#include "manyworlds/memory/buffer_view.hpp"

namespace manyworlds::inline v0::detail::host {

/// Walks what a peer says of its memory. Whatever it says, only that memory is read,
/// and at most the message's number of bytes.
class remote_cursor {
 public:
  remote_cursor(const remote_payload& where, std::size_t bytes) noexcept
      : where_(where), window_(bytes) {
    if (where.views == 0) window_.add({0, where.address, bytes});
  }

  [[nodiscard]] std::size_t remaining() const noexcept { return window_.remaining(); }

  /// Returns the number of next pieces, of at most `limit` bytes. 0 says that the views
  /// end before the payload does, or cannot be read (`error` is set).
  [[nodiscard]] std::size_t fill(const shm::remote_memory& from, std::span<iovec> entries,
                                 std::size_t limit, int& error);
  void advance(std::size_t bytes) noexcept { window_.advance(bytes); }

 private:
  [[nodiscard]] bool fetch(const shm::remote_memory& from, int& error);

  remote_payload where_;
  std::uint64_t fetched_ = 0;
  piece_window window_;
};

}  // namespace manyworlds::inline v0::detail::host
