// Collective signature: what members must agree on, in the word that every message of a
// collective carries.
#pragma once

#include <cstdint>
#include <string>

#include "host/collective_shape.hpp"
#include "manyworlds/algorithms.hpp"

namespace manyworlds::inline v0::detail::host {

/// Carries 20 mixed bits of the sizes and the last 16 bits of the sequence. Where these
/// bits hide a difference, the sizes and the order of messages show it.
class collective_signature {
 public:
  constexpr collective_signature() noexcept = default;
  constexpr explicit collective_signature(std::uint64_t word) noexcept : word_(word) {}
  /// `may_use_pages`: the sender goes by pages once all have agreed on it. It is part of
  /// the word, or members that differ in it would wait for each other without a sign.
  collective_signature(const collective_shape& shape, algorithm use,
                       std::uint64_t sequence, bool may_use_pages) noexcept;

  [[nodiscard]] constexpr std::uint64_t word() const noexcept { return word_; }
  /// Returns the last 16 bits of its number.
  [[nodiscard]] constexpr std::uint16_t sequence() const noexcept {
    return static_cast<std::uint16_t>(word_);
  }
  /// Returns whether both members have entered the same collective.
  [[nodiscard]] bool agrees_with(collective_signature other) const noexcept;
  /// Returns "all_reduce 17 (float32, sum)", where only what differs from `other` is in
  /// parentheses. The word may be a stranger's.
  [[nodiscard]] std::string text(collective_signature other) const;

  friend constexpr bool operator==(collective_signature,
                                   collective_signature) noexcept = default;

 private:
  std::uint64_t word_ = 0;
};

}  // namespace manyworlds::inline v0::detail::host
