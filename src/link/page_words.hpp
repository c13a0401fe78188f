// Page words: what stands in the memory that one member of a world writes and all others
// read.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "link/shared_word.hpp"
#include "manyworlds/detail/assertion.hpp"

namespace manyworlds::inline v0::detail::shm {

/// Entries are two lines long and two lines apart: many prefetchers fetch two lines.
inline constexpr std::size_t page_entry_bytes = 2 * line_size;
/// A payload of at most this many bytes stands in its entry.
inline constexpr std::size_t page_inline_bytes =
    page_entry_bytes - 3 * sizeof(std::uint64_t);

/// One collective as its writer has entered it. `number` is stored last, so that what a
/// reader finds beside it is whole.
template <class Memory>
struct alignas(page_entry_bytes) basic_page_entry {
  typename Memory::template atomic<std::uint64_t> number;
  typename Memory::template atomic<std::uint64_t> signature;
  /// The size of the whole payload, of which a slice may stand here.
  typename Memory::template atomic<std::uint64_t> bytes;
  std::array<std::byte, page_inline_bytes> payload;
};

/// Zeroed memory is the page of a member that has entered nothing.
template <class Memory, unsigned Entries>
struct basic_page_words {
  static constexpr unsigned entry_count = Entries;

  /// What the owner waits for while it sleeps (`page_wait`); 0 while it is awake.
  alignas(page_entry_bytes) typename Memory::template atomic<std::uint64_t> waits;
  std::array<basic_page_entry<Memory>, Entries> entries;

  [[nodiscard]] basic_page_entry<Memory>& entry(std::uint64_t number) noexcept {
    return entries[number % Entries];
  }
  [[nodiscard]] const basic_page_entry<Memory>& entry(
      std::uint64_t number) const noexcept {
    return entries[number % Entries];
  }
};

/// What a member that sleeps waits for. Numbers of collectives count from 1.
namespace page_wait {
inline constexpr unsigned rank_bits = 16;
inline constexpr std::size_t most_members = (std::size_t{1} << rank_bits) - 1;

/// All others have entered that number.
[[nodiscard]] constexpr std::uint64_t for_all(std::uint64_t number) noexcept {
  return number << rank_bits;
}
/// That member has entered that number.
[[nodiscard]] constexpr std::uint64_t for_member(std::size_t rank,
                                                 std::uint64_t number) noexcept {
  return number << rank_bits | (rank + 1);
}
}  // namespace page_wait

/// An entry as it was loaded, once.
struct page_look {
  std::uint64_t number = 0;
  std::uint64_t signature = 0;
  std::uint64_t bytes = 0;
};

/// One member's view of the pages of all members of a world, its own included.
/// Lifetime: the pages, and both lists, outlive it.
///
/// A member enters number n only when it has ended n - 1, and n stands in the entry of
/// n - Entries. So an entry is free when all others have entered something later.
template <class Memory, unsigned Entries>
class basic_page_group {
 public:
  using words = basic_page_words<Memory, Entries>;

  basic_page_group() noexcept = default;
  /// `all` are the pages by rank; `known` has room for a number of each, 0 at first.
  basic_page_group(words& own, std::span<const words* const> all,
                   std::span<std::uint64_t> known, std::size_t self) noexcept
      : own_(&own), all_(all), known_(known), self_(self) {
    MW_ASSERT(self < all_.size() && all_[self] == &own, "this member's page is its own");
    MW_ASSERT(known_.size() == all_.size(), "each member has a number");
    MW_ASSERT(all_.size() <= page_wait::most_members, "a word names each member");
  }

  [[nodiscard]] std::size_t size() const noexcept { return all_.size(); }

  // --- this member's page

  /// Returns the number that all others must have entered before `number` may be
  /// published; 0 if none.
  [[nodiscard]] static constexpr std::uint64_t room_for(std::uint64_t number) noexcept {
    return number > Entries ? number - Entries + 1 : 0;
  }
  /// Returns the entry that `number` is written to. Precondition: it is free.
  [[nodiscard]] basic_page_entry<Memory>& entry_for(std::uint64_t number) noexcept {
    return own_->entry(number);
  }
  /// Shows the entry, which the caller has filled.
  void publish(std::uint64_t number, std::uint64_t signature,
               std::uint64_t bytes) noexcept {
    basic_page_entry<Memory>& e = own_->entry(number);
    e.signature.store(signature, std::memory_order_relaxed);
    e.bytes.store(bytes, std::memory_order_relaxed);
    // Release: pairs with the acquire in look(), which then finds the rest.
    e.number.store(number, std::memory_order_release);
    // Pairs with the fences of the others' publish() and prepare_sleep(): of two members
    // that enter, the later one finds the other's entry; and who looks before it sleeps
    // finds ours, or we find it asleep.
    Memory::full_fence();
  }
  /// Calls `wake(rank)` for each member that sleeps until `number` was published, which
  /// it was. Where one waits for several members, the last of them wakes it, so the
  /// others do not look at who sleeps. `is_root` says that members may wait for this one
  /// alone.
  template <class Wake>
  void wake_sleepers(std::uint64_t number, bool is_root, Wake wake) noexcept {
    // The last one is behind all fences of publish(), so it finds all entries, and each
    // sleeper that has not found them itself.
    const bool is_last = all_have_entered(number);
    if (!is_last && !is_root) return;
    for (std::size_t rank = 0; rank < all_.size(); ++rank) {
      if (rank == self_) continue;
      const std::uint64_t waits = all_[rank]->waits.load(std::memory_order_relaxed);
      if (waits == 0) [[likely]]
        continue;
      if ((is_last && waits == page_wait::for_all(number)) ||
          waits == page_wait::for_member(self_, number)) {
        wake(rank);
      }
    }
  }

  /// Called before sleeping. `look_again` says whether what is waited for has come.
  /// Returns whether to sleep; then the member that brings it wakes this one.
  template <class LookAgain>
  [[nodiscard]] bool prepare_sleep(std::uint64_t waits, LookAgain look_again) {
    own_->waits.store(waits, std::memory_order_relaxed);
    // Pairs with the fence in publish().
    Memory::full_fence();
    if (!look_again()) return true;
    cancel_sleep();
    return false;
  }
  /// Called after sleeping, no matter what ended it.
  void cancel_sleep() noexcept { own_->waits.store(0, std::memory_order_relaxed); }

  // --- the others' pages

  /// Returns what the member's entry for `number` holds. It has entered that if the
  /// numbers are equal; a larger one is a lie, as this member has not ended `number`.
  [[nodiscard]] page_look look(std::size_t rank, std::uint64_t number) noexcept {
    const basic_page_entry<Memory>& e = all_[rank]->entry(number);
    page_look seen;
    // Acquire: pairs with the release in publish().
    seen.number = e.number.load(std::memory_order_acquire);
    if (seen.number != number) return seen;
    known_[rank] = number;
    seen.signature = e.signature.load(std::memory_order_relaxed);
    seen.bytes = e.bytes.load(std::memory_order_relaxed);
    return seen;
  }
  /// Says whether the member has entered that number, as far as can be seen.
  [[nodiscard]] bool has_entered(std::size_t rank, std::uint64_t number) noexcept {
    if (known_[rank] >= number) return true;
    const std::uint64_t seen =
        all_[rank]->entry(number).number.load(std::memory_order_acquire);
    if (seen < number) return false;
    known_[rank] = number;
    return true;
  }
  /// Says the same without a look.
  [[nodiscard]] bool is_known_to_have_entered(std::size_t rank,
                                              std::uint64_t number) const noexcept {
    return known_[rank] >= number;
  }
  [[nodiscard]] bool all_have_entered(std::uint64_t number) noexcept {
    for (std::size_t rank = 0; rank < all_.size(); ++rank) {
      if (rank != self_ && !has_entered(rank, number)) return false;
    }
    return true;
  }
  /// Returns the payload that stands in the member's entry for `number`.
  [[nodiscard]] const std::byte* inline_payload(std::size_t rank,
                                                std::uint64_t number) const noexcept {
    return all_[rank]->entry(number).payload.data();
  }

 private:
  words* own_ = nullptr;
  std::span<const words* const> all_;
  /// The last number that each member is known to have entered.
  std::span<std::uint64_t> known_;
  std::size_t self_ = 0;
};

inline constexpr unsigned page_entries = 8;
using page_words = basic_page_words<hardware_memory, page_entries>;
using page_group = basic_page_group<hardware_memory, page_entries>;

static_assert(sizeof(basic_page_entry<hardware_memory>) == page_entry_bytes);
static_assert(sizeof(page_words) == (page_entries + 1) * page_entry_bytes);

}  // namespace manyworlds::inline v0::detail::shm
