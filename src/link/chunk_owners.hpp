// Chunk owners: the slot for which each run of outgoing chunks was allocated.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>

#include "link/chunk_slab.hpp"
#include "link/slot_set.hpp"
#include "manyworlds/detail/assertion.hpp"

namespace manyworlds::inline v0::detail::shm {

/// Remembers the slot of each run. The reader frees a run as it reads the cell that
/// names it. Runs that a broken world had sent and that were not read come back when
/// both sides have given back the world's slot.
///
/// Thread: the user reactor, except for `note_in_use` and `note_given_back`.
class chunk_owners {
 public:
  /// Notes the slot of a run, which its first chunk stands for.
  void note_allocated(unsigned chunk, unsigned slot) noexcept {
    MW_ASSERT(chunk < chunk_states::chunks, "a chunk lies in the slab");
    MW_ASSERT(slot < slot_count, "a run belongs to a slot");
    owners_[chunk] = static_cast<std::uint16_t>(slot);
  }

  /// Calls `give_back` for each run of a slot that is used again, so that both sides
  /// are done with it. A run may have been freed long ago.
  template <class GiveBack>
  void reclaim(unsigned slot, GiveBack give_back) noexcept {
    MW_ASSERT(slot < slot_count, "only a slot's runs are reclaimed");
    for (unsigned chunk = 0; chunk != chunk_states::chunks; ++chunk) {
      if (owners_[chunk] != slot) continue;
      owners_[chunk] = no_slot;
      give_back(chunk);
    }
  }
  /// Does the same for the slots that the peer has given back and that are not `in_use`
  /// here.
  template <class InUse, class GiveBack>
  void reclaim_over(InUse in_use, GiveBack give_back) noexcept {
    for (unsigned chunk = 0; chunk != chunk_states::chunks; ++chunk) {
      const unsigned slot = owners_[chunk];
      if (slot == no_slot || !is_over(slot) || in_use(slot)) continue;
      owners_[chunk] = no_slot;
      give_back(chunk);
    }
  }

  // Thread: the service reactor.
  void note_in_use(unsigned slot) noexcept {
    MW_ASSERT(slot < slot_count, "a slot in use exists");
    over_[slot / 64].fetch_and(~(std::uint64_t{1} << (slot % 64)),
                               std::memory_order_release);
  }
  void note_given_back(const slot_set& by_peer) noexcept {
    for (std::size_t at = 0; at != slot_set::words; ++at) {
      // Release: pairs with the acquire in is_over(); the peer reads nothing of the
      // slot afterwards.
      over_[at].fetch_or(by_peer.word(at), std::memory_order_release);
    }
  }

 private:
  static constexpr std::uint16_t no_slot = slot_count;
  static_assert(slot_count < 0xffff, "a slot or `no_slot` fits an entry");

  [[nodiscard]] bool is_over(unsigned slot) const noexcept {
    return (over_[slot / 64].load(std::memory_order_acquire) >> (slot % 64) & 1) != 0;
  }

  std::array<std::uint16_t, chunk_states::chunks> owners_ = [] {
    std::array<std::uint16_t, chunk_states::chunks> none{};
    none.fill(no_slot);
    return none;
  }();
  std::array<std::atomic<std::uint64_t>, slot_set::words> over_{};
};

}  // namespace manyworlds::inline v0::detail::shm
