// Collective shape: one member's part in a collective, with checked arguments.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "manyworlds/detail/assertion.hpp"
#include "manyworlds/detail/collective_part.hpp"
#include "manyworlds/detail/operation.hpp"

namespace manyworlds::inline v0::detail::host {

/// Divides a buffer among the ranks, as equally as its elements allow, or by the
/// caller's counts.
class parts {
 public:
  parts() noexcept = default;
  parts(std::size_t elements, rank_t members, std::size_t element_bytes) noexcept
      : elements_(elements),
        members_(static_cast<std::size_t>(members)),
        element_bytes_(element_bytes) {}
  parts(std::span<const std::size_t> counts, std::size_t element_bytes);

  /// Returns where a rank's part begins, in bytes.
  [[nodiscard]] std::size_t offset(rank_t rank) const noexcept {
    const auto at = static_cast<std::size_t>(rank);
    MW_ASSERT(rank >= 0 && at <= (starts_.empty() ? members_ : starts_.size() - 1),
              "a part belongs to a member");
    return (starts_.empty() ? share(elements_ * at) : starts_[at]) * element_bytes_;
  }
  [[nodiscard]] std::size_t bytes(rank_t rank) const noexcept {
    return offset(rank + 1) - offset(rank);
  }
  [[nodiscard]] std::size_t longest() const noexcept;
  template <class Byte>
  [[nodiscard]] std::span<Byte> of(std::span<Byte> whole, rank_t rank) const noexcept {
    MW_ASSERT(offset(rank) + bytes(rank) <= whole.size(), "a part lies in its buffer");
    return whole.subspan(offset(rank), bytes(rank));
  }

 private:
  /// Divides with half the bits, in half the time: each small collective divides
  /// several times.
  [[nodiscard]] std::size_t share(std::size_t elements) const noexcept {
    if ((elements | members_) >> 32 != 0) return elements / members_;
    return static_cast<std::uint32_t>(elements) / static_cast<std::uint32_t>(members_);
  }

  std::size_t elements_ = 0;
  std::size_t members_ = 1;
  std::size_t element_bytes_ = 1;
  std::vector<std::size_t> starts_;
};

struct collective_shape {
  operation_kind kind = operation_kind::none;
  dtype type = dtype::uint8;
  reduction by = sum;
  rank_t root = no_rank;
  bool is_variable = false;
  std::span<const std::byte> in;
  std::span<std::byte> out;
  /// Divisions of the buffers that have parts.
  parts in_parts;
  parts out_parts;
  /// Sizes on which all members must agree: the elements, or those of one rank's part
  /// where all parts are equal, or all counts. 0 where the sizes of messages alone
  /// tell.
  std::uint64_t agreed_sizes = 0;
  /// The size by which an algorithm is chosen.
  std::size_t bytes = 0;
};

/// Returns whether one member gives or receives everything.
[[nodiscard]] bool has_root(operation_kind kind) noexcept;

/// Returns whether it combines what the members give.
[[nodiscard]] bool reduces(operation_kind kind) noexcept;

/// Returns what is wrong with the arguments of this member alone; empty if nothing is.
[[nodiscard]] std::string validate_collective(const operation& op, rank_t self,
                                              rank_t size);

/// Returns this member's part. Precondition: its arguments are valid.
[[nodiscard]] collective_shape shape_of(const operation& op, rank_t self, rank_t size);

}  // namespace manyworlds::inline v0::detail::host
