// Slot set: which slots of a link.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>

#include "manyworlds/detail/assertion.hpp"

namespace manyworlds::inline v0::detail::shm {

inline constexpr unsigned slot_count = 256;

/// A set of slots of a link.
class slot_set {
 public:
  static constexpr std::size_t words = slot_count / 64;
  static_assert(slot_count % 64 == 0 && words == 4, "`empty` looks at four words");

  void insert(unsigned slot) noexcept {
    MW_ASSERT(slot < slot_count, "a slot lies in the set");
    bits_[slot / 64] |= bit(slot);
  }
  void insert(const slot_set& others) noexcept {
    for (std::size_t at = 0; at != words; ++at) bits_[at] |= others.bits_[at];
  }
  void erase(unsigned slot) noexcept {
    MW_ASSERT(slot < slot_count, "a slot lies in the set");
    bits_[slot / 64] &= ~bit(slot);
  }
  [[nodiscard]] bool contains(unsigned slot) const noexcept {
    MW_ASSERT(slot < slot_count, "a slot lies in the set");
    return (bits_[slot / 64] & bit(slot)) != 0;
  }
  [[nodiscard]] bool empty() const noexcept {
    return (bits_[0] | bits_[1] | bits_[2] | bits_[3]) == 0;
  }
  [[nodiscard]] unsigned count() const noexcept {
    int all = 0;
    for (const std::uint64_t word : bits_) all += std::popcount(word);
    return static_cast<unsigned>(all);
  }
  [[nodiscard]] std::uint64_t& word(std::size_t at) noexcept { return bits_[at]; }
  [[nodiscard]] std::uint64_t word(std::size_t at) const noexcept { return bits_[at]; }

  template <class Visit>
  void for_each(Visit visit) const {
    for (unsigned at = 0; at != words; ++at)
      for (auto left = bits_[at]; left != 0; left &= left - 1)
        visit(at * 64 + static_cast<unsigned>(std::countr_zero(left)));
  }

 private:
  static constexpr std::uint64_t bit(unsigned slot) noexcept {
    return std::uint64_t{1} << (slot % 64);
  }
  std::array<std::uint64_t, words> bits_{};
};

}  // namespace manyworlds::inline v0::detail::shm
