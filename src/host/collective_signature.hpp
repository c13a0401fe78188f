// Collective signature: what members must agree on, in the one word that every message of
// a collective carries.
#pragma once

#include <cstdint>
#include <string>

#include "collective_shape.hpp"
#include "manyworlds/host/algorithms.hpp"

namespace manyworlds::inline v0::host {

/// Of the sizes it carries 20 mixed bits, of the sequence the last 16; a difference that
/// they do not show is seen by the sizes and the order of messages.
class collective_signature {
 public:
  constexpr collective_signature() noexcept = default;
  constexpr explicit collective_signature(std::uint64_t word) noexcept : word_(word) {}
  collective_signature(const collective_shape& shape, algorithm use,
                       std::uint64_t sequence) noexcept;

  [[nodiscard]] constexpr std::uint64_t word() const noexcept { return word_; }
  /// The last 16 bits of its number.
  [[nodiscard]] constexpr std::uint16_t sequence() const noexcept {
    return static_cast<std::uint16_t>(word_);
  }
  /// Whether this member and one that says `other` do the same.
  [[nodiscard]] bool agrees_with(collective_signature other) const noexcept;
  /// "all_reduce 17 (float32, sum)"; `other` is what it is compared with, so that what
  /// differs is said. Also of a word that a stranger made up.
  [[nodiscard]] std::string text(collective_signature other) const;

  friend constexpr bool operator==(collective_signature,
                                   collective_signature) noexcept = default;

 private:
  std::uint64_t word_ = 0;
};

}  // namespace manyworlds::inline v0::host
