// Pool exchange: tells the two processes of a link of each other's shared pools.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "link/local_socket.hpp"
#include "link/mapped_pool.hpp"
#include "link/slot_set.hpp"
#include "manyworlds/detail/pool_registry.hpp"

namespace manyworlds::inline v0::detail::shm {

/// The most pools at a time in each direction; a pool's name is an index below it.
inline constexpr unsigned most_pools = 64;

/// A packet between the two. `pool` carries a descriptor, before the first offer that
/// names it; `gone` says that the pool ended; `unmapped` says that its name may be used
/// again. `page` carries the page of a member: `index` is the slot of its world, and
/// `bytes` the token by which its member names it there.
struct pool_notice {
  enum class what : std::uint32_t { pool, gone, unmapped, page };
  what kind = what::pool;
  std::uint32_t index = 0;
  std::uint64_t bytes = 0;
};

/// Exchanges pools over the connection on which the two paired, which carries
/// descriptors. No call waits. Thread: the user reactor.
class pool_exchange {
 public:
  /// Shares nothing if either argument is empty.
  pool_exchange(unique_descriptor line, std::shared_ptr<pool_registry> ours) noexcept
      : line_(std::move(line)), ours_(std::move(ours)) {}

  // Ours.
  [[nodiscard]] std::shared_ptr<pool_memory> find(const void* first,
                                                  std::size_t bytes) const {
    return line_ && ours_ ? ours_->find(first, bytes) : nullptr;
  }
  /// Returns the pool's name at the peer, which is told of the pool now if it was not
  /// before. Returns nothing if it cannot be told; then it is memory like any other.
  [[nodiscard]] std::optional<unsigned> name_for_peer(const pool_memory& pool) noexcept;
  /// Says whether a pool that the peer knows may have gone, by one load.
  [[nodiscard]] bool may_have_lost_some() const noexcept {
    return told_ > 0 && ours_->removals() != removals_seen_;
  }
  /// Tells the peer which pools have gone. Returns true if it should be woken for that.
  [[nodiscard]] bool tell_gone() noexcept;

  // Pages of members, which pass through here.
  /// Says whether descriptors can be passed at all.
  [[nodiscard]] bool passes_descriptors() const noexcept {
    return static_cast<bool>(line_);
  }
  /// Passes the page of a slot's world. Returns the token that names it; 0 if the kernel
  /// refuses.
  [[nodiscard]] std::uint64_t pass_page(unsigned slot, int descriptor) noexcept;
  /// Returns the page that the peer has passed under that token; empty if there is none.
  [[nodiscard]] unique_descriptor take_page(unsigned slot, std::uint64_t token) noexcept;
  /// Drops a page that no world takes any longer.
  void forget_page(unsigned slot) noexcept;

  // Theirs.
  /// Returns the peer's pool, or null if it cannot be read; then `wrong` names the
  /// peer's mistake, if there was one.
  [[nodiscard]] std::shared_ptr<mapped_pool> pool_of_peer(std::uint64_t name,
                                                          const char*& wrong) noexcept;
  /// Takes a bounded number of packets from the peer.
  void poll() noexcept;
  [[nodiscard]] unsigned mapped() const noexcept { return mapped_; }

 private:
  struct told_pool {
    std::uint64_t id = 0;  ///< 0: the name is free
    bool gone = false;
  };
  struct passed_page {
    unsigned slot = 0;
    std::uint64_t token = 0;
    unique_descriptor file;
  };
  struct known_pool {
    std::shared_ptr<mapped_pool> pool;
    const char* wrong = nullptr;
    bool is_known = false;
    bool owes_answer = false;
  };

  [[nodiscard]] bool say(const pool_notice& what, int descriptor = -1) noexcept;
  void take(const pool_notice& notice, unique_descriptor file) noexcept;
  void keep_page(const pool_notice& notice, unique_descriptor file) noexcept;
  void answer(unsigned index) noexcept;

  unique_descriptor line_;
  std::shared_ptr<pool_registry> ours_;
  std::array<told_pool, most_pools> told_pools_{};
  unsigned told_ = 0;
  std::uint64_t removals_seen_ = 0;
  std::array<known_pool, most_pools> known_{};
  unsigned mapped_ = 0;
  bool owes_answers_ = false;
  std::uint64_t pages_passed_ = 0;
  /// At most one for each slot.
  std::vector<passed_page> pages_;
};

}  // namespace manyworlds::inline v0::detail::shm
