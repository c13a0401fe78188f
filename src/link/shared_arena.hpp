// Shared arena: the sealed memory of one link between two processes on one host.
#pragma once

#include <cstddef>
#include <memory>
#include <string>

#include "arena_layout.hpp"

namespace manyworlds::inline v0::shm {

/// Chunks of each direction that have memory from the start: however little there is
/// later, messages get through.
inline constexpr unsigned first_chunks = 1;

/// A mapping of `arena_bytes`, and one private page right before it (whose use is the
/// robust futex's: the kernel's list of them must not lie where a peer can write).
///
/// Its size is sealed, so that a peer cannot cut it off under us (SIGBUS). What it holds
/// is the peer's to change at any time: read once, check, use (law 11). Pages are
/// reserved with `reserve` before they are first touched, so that a memory limit is an
/// error code and not a signal.
class shared_arena {
 public:
  /// Makes one, as side 0. Null, and why, if the machine refuses: memfd_create, sealing,
  /// memory.
  [[nodiscard]] static std::unique_ptr<shared_arena> make(std::string& why_not);
  /// Maps one that a peer made, as side 1; takes the descriptor in any case. Null, and
  /// why, if it is not what it should be.
  [[nodiscard]] static std::unique_ptr<shared_arena> attach(int descriptor,
                                                            std::string& why_not);
  ~shared_arena();
  shared_arena(const shared_arena&) = delete;
  shared_arena& operator=(const shared_arena&) = delete;

  [[nodiscard]] int side() const noexcept { return side_; }
  [[nodiscard]] int peer_side() const noexcept { return 1 - side_; }
  [[nodiscard]] int descriptor() const noexcept { return descriptor_; }
  [[nodiscard]] std::byte* at(std::size_t offset) const noexcept {
    return base_ + offset;
  }
  [[nodiscard]] std::byte* private_page() const noexcept { return base_ - page_bytes; }

  /// Has the pages of this range there. 0, or the errno (ENOMEM, ENOSPC ...).
  [[nodiscard]] int reserve(std::size_t offset, std::size_t bytes) const noexcept;

 private:
  shared_arena(int descriptor, int side) noexcept
      : descriptor_(descriptor), side_(side) {}
  [[nodiscard]] bool map(std::string& why_not);
  [[nodiscard]] int reserve_what_always_is() const noexcept;

  int descriptor_;
  int side_;
  std::byte* base_ = nullptr;
};

}  // namespace manyworlds::inline v0::shm
