// Mapped pool: a peer's shared pool as this process sees it, read-only.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "local_socket.hpp"

namespace manyworlds::inline v0::shm {

/// What it holds is the peer's to change at any time. It cannot be cut off under us: that
/// is sealed.
class mapped_pool {
 public:
  mapped_pool(const mapped_pool&) = delete;
  mapped_pool& operator=(const mapped_pool&) = delete;
  ~mapped_pool();

  /// Null: either `wrong` says what is wrong with it, or this process has no room for it.
  [[nodiscard]] static std::shared_ptr<mapped_pool> map(const unique_descriptor& file,
                                                        std::uint64_t bytes,
                                                        const char*& wrong);

  /// Whether so much lies within it.
  [[nodiscard]] bool contains(std::uint64_t offset, std::uint64_t bytes) const noexcept {
    return offset <= bytes_ && bytes <= bytes_ - offset;
  }
  /// Of what it contains; makes sure that the pages are there. Null if they cannot be
  /// had: the peer has left holes, and there is no memory for them.
  [[nodiscard]] const std::byte* at(std::size_t offset, std::size_t bytes) noexcept;

 private:
  mapped_pool(const std::byte* base, std::size_t bytes);

  const std::byte* base_;
  std::size_t bytes_;
  /// The pieces of it that were looked at before.
  std::vector<bool> seen_;
};

}  // namespace manyworlds::inline v0::shm
