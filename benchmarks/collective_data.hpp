// Collective data: what goes into a collective, and what has to come out of it.
#pragma once

#include <array>
#include <cstddef>
#include <manyworlds/mw.hpp>
#include <optional>
#include <string_view>
#include <vector>

namespace mwbench {

enum class collective_kind {
  broadcast,
  reduce,
  all_reduce,
  gather,
  all_gather,
  scatter,
  reduce_scatter,
  all_to_all,
  barrier,
};

inline constexpr std::array<std::string_view, 9> collective_kinds{
    "broadcast", "reduce",         "all_reduce", "gather", "all_gather",
    "scatter",   "reduce_scatter", "all_to_all", "barrier"};

[[nodiscard]] constexpr std::string_view name_of(collective_kind kind) noexcept {
  return collective_kinds[static_cast<std::size_t>(kind)];
}
[[nodiscard]] constexpr std::optional<collective_kind> collective_kind_named(
    std::string_view name) noexcept {
  for (std::size_t i = 0; i < collective_kinds.size(); ++i) {
    if (collective_kinds[i] == name) return static_cast<collective_kind>(i);
  }
  return std::nullopt;
}

/// One member's buffers for a collective with rank 0 as root. The size is that of all
/// members' data together, as in nccl-tests; each has at least an element. Reductions add
/// floats, the others move bytes.
class collective_data {
 public:
  collective_data(collective_kind kind, std::size_t size, mw::rank_t rank,
                  mw::rank_t members);

  [[nodiscard]] collective_kind kind() const noexcept { return kind_; }
  [[nodiscard]] bool adds() const noexcept;
  /// Elements, and bytes, of all data together.
  [[nodiscard]] std::size_t count() const noexcept { return part_ * parts_; }
  [[nodiscard]] std::size_t bytes() const noexcept { return count() * element_size(); }
  /// By which nccl-tests multiplies the speed, for what a member's connection carries.
  [[nodiscard]] double bus_factor() const noexcept;

  /// What this member gives and gets: nothing where only the root does. `broadcast` has
  /// the target alone.
  [[nodiscard]] mw::const_buffer_view source() const noexcept;
  [[nodiscard]] mw::buffer_view target() noexcept;
  /// Makes every element of the target one that the collective does not leave there.
  void spoil() noexcept;
  /// Elements of the target that are not as the collective leaves them.
  [[nodiscard]] std::size_t wrong() const noexcept;

 private:
  [[nodiscard]] std::size_t element_size() const noexcept { return adds() ? 4 : 1; }
  [[nodiscard]] std::size_t source_count() const noexcept;
  [[nodiscard]] std::size_t target_count() const noexcept;
  [[nodiscard]] int expected(std::size_t at) const noexcept;

  collective_kind kind_;
  mw::rank_t rank_;
  mw::rank_t members_;
  std::size_t parts_;
  std::size_t part_;
  // Room for either type.
  std::vector<float> source_;
  std::vector<float> target_;
};

}  // namespace mwbench
