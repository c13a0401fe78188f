// Chunk owners: for which slot each run of outgoing chunks was allocated.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>

#include "chunk_slab.hpp"
#include "doorbell.hpp"

namespace manyworlds::inline v0::shm {

/// The reader frees a chunk as it reads the cell that names it. What a world had sent and
/// nobody has read when it broke is read by nobody: those chunks come back when both
/// sides are done with the world's slot.
///
/// On the user reactor, but for what the service reactor notes.
class chunk_owners {
 public:
  /// A run goes by its first chunk.
  void note_allocated(unsigned chunk, unsigned slot) noexcept {
    owners_[chunk] = static_cast<std::uint16_t>(slot);
  }

  /// The slot is used again, so both sides were done with it: `give_back` is called for
  /// each of its runs, also for one that was freed long ago.
  template <class GiveBack>
  void reclaim(unsigned slot, GiveBack give_back) noexcept {
    for (unsigned chunk = 0; chunk != chunk_states::chunks; ++chunk) {
      if (owners_[chunk] != slot) continue;
      owners_[chunk] = nobody;
      give_back(chunk);
    }
  }
  /// The same for the slots that the peer has given back, and that are not `in_use` here.
  template <class InUse, class GiveBack>
  void reclaim_over(InUse in_use, GiveBack give_back) noexcept {
    for (unsigned chunk = 0; chunk != chunk_states::chunks; ++chunk) {
      const unsigned slot = owners_[chunk];
      if (slot == nobody || !is_over(slot) || in_use(slot)) continue;
      owners_[chunk] = nobody;
      give_back(chunk);
    }
  }

  // The service reactor.
  void note_lent(unsigned slot) noexcept {
    over_[slot / 64].fetch_and(~(std::uint64_t{1} << (slot % 64)),
                               std::memory_order_release);
  }
  void note_given_back(const slot_set& by_peer) noexcept {
    for (std::size_t at = 0; at != slot_set::words; ++at) {
      // Release: pairs with the acquire in is_over(); the peer has read what it will.
      over_[at].fetch_or(by_peer.word(at), std::memory_order_release);
    }
  }

 private:
  static constexpr std::uint16_t nobody = slot_count;

  [[nodiscard]] bool is_over(unsigned slot) const noexcept {
    return (over_[slot / 64].load(std::memory_order_acquire) >> (slot % 64) & 1) != 0;
  }

  std::array<std::uint16_t, chunk_states::chunks> owners_ = [] {
    std::array<std::uint16_t, chunk_states::chunks> none{};
    none.fill(nobody);
    return none;
  }();
  std::array<std::atomic<std::uint64_t>, slot_set::words> over_{};
};

}  // namespace manyworlds::inline v0::shm
