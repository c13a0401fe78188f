// Shared segment: the sealed memory of one link between two processes on one host.
#pragma once

#include <cstddef>
#include <memory>
#include <string>

#include "io/descriptor.hpp"
#include "link/segment_layout.hpp"
#include "manyworlds/detail/assertion.hpp"

namespace manyworlds::inline v0::detail::shm {

/// Chunks of each direction that have memory from the start, so that messages get
/// through even if there is no more later.
inline constexpr unsigned first_chunks = 1;

/// Maps `segment_bytes`, and one private page right before them for the robust futex,
/// since the kernel's list must not lie where a peer can write.
///
/// Its size is sealed, so that a peer cannot shrink it under us (SIGBUS). The peer may
/// change its content at any time: read once, check, use (law 11). Pages must be
/// reserved with `reserve` before they are first touched, so that a memory limit is an
/// error code and not a signal.
class shm_segment {
 public:
  /// Makes a segment, as side 0. Returns null, and why, if the machine refuses
  /// memfd_create, sealing, or memory.
  [[nodiscard]] static std::unique_ptr<shm_segment> make(std::string& why_not);
  /// Maps a segment that a peer made, as side 1, and takes the descriptor in any case.
  /// Returns null, and why, if it is not a valid segment.
  [[nodiscard]] static std::unique_ptr<shm_segment> attach(int descriptor,
                                                           std::string& why_not);
  ~shm_segment();
  shm_segment(const shm_segment&) = delete;
  shm_segment& operator=(const shm_segment&) = delete;

  [[nodiscard]] int side() const noexcept { return side_; }
  [[nodiscard]] int peer_side() const noexcept { return 1 - side_; }
  [[nodiscard]] int descriptor() const noexcept { return descriptor_.get(); }
  [[nodiscard]] std::byte* at(std::size_t offset) const noexcept {
    MW_ASSERT(base_ && offset < segment_bytes, "an address lies in the segment");
    return base_ + offset;
  }
  [[nodiscard]] std::byte* private_page() const noexcept { return base_ - page_bytes; }

  /// Reserves the pages of this range. Returns 0 or the errno (ENOMEM, ENOSPC ...).
  [[nodiscard]] int reserve(std::size_t offset, std::size_t bytes) const noexcept;
  /// Gives the memory of this range back; its content is lost. Where the kernel refuses,
  /// it stays.
  void give_back(std::size_t offset, std::size_t bytes) const noexcept;

 private:
  shm_segment(int descriptor, int side) noexcept : descriptor_(descriptor), side_(side) {}
  [[nodiscard]] bool map(std::string& why_not);
  [[nodiscard]] int reserve_what_always_is() const noexcept;

  unique_descriptor descriptor_;
  int side_;
  std::byte* base_ = nullptr;
};

}  // namespace manyworlds::inline v0::detail::shm
