// Mapped pool: a peer's shared pool as this process sees it, read-only.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "io/descriptor.hpp"

namespace manyworlds::inline v0::detail::shm {

/// Maps a peer's pool. The peer may change its content at any time, but its size is
/// sealed and cannot shrink.
class mapped_pool {
 public:
  mapped_pool(const mapped_pool&) = delete;
  mapped_pool& operator=(const mapped_pool&) = delete;
  ~mapped_pool();

  /// Returns null if `wrong` says what is wrong with the pool, or if this process has
  /// no room for it.
  [[nodiscard]] static std::shared_ptr<mapped_pool> map(const unique_descriptor& file,
                                                        std::uint64_t bytes,
                                                        const char*& wrong);

  /// Says whether the range lies within the pool.
  [[nodiscard]] bool contains(std::uint64_t offset, std::uint64_t bytes) const noexcept {
    return offset <= bytes_ && bytes <= bytes_ - offset;
  }
  /// Returns the address of a range, with its pages in memory. Returns null if the peer
  /// has left holes and there is no memory for them. Precondition: contains().
  [[nodiscard]] const std::byte* at(std::size_t offset, std::size_t bytes) noexcept;

 private:
  mapped_pool(const std::byte* base, std::size_t bytes);

  const std::byte* base_;
  std::size_t bytes_;
  /// Pieces that were populated before.
  std::vector<bool> seen_;
};

}  // namespace manyworlds::inline v0::detail::shm
