// Register table: which registers the controller has given out, and which are dropped.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

#include "manyworlds/detail/assertion.hpp"
#include "manyworlds/spmd/value_writer.hpp"

namespace manyworlds::inline v0::detail {

/// Gives names to registers. An index is used again when its register was released, with
/// the next generation; one that has used up its generations is never used again, so that
/// a name never means two values (S-d). The latest index that was released comes first:
/// the workers' files stay as small as the registers that live at once. Thread: the
/// reactor.
class register_table {
 public:
  register_id allocate() {
    if (free_.empty()) {
      generations_.push_back(1);
      return {static_cast<std::uint32_t>(generations_.size() - 1), 1};
    }
    const std::uint32_t index = free_.back();
    free_.pop_back();
    return {index, ++generations_[index]};
  }
  /// Makes the index free. Precondition: no command that uses it follows.
  void release(register_id which) {
    MW_ASSERT(is_live(which), "a register is released once");
    // Marked as free by an even generation: live ones are odd.
    if (++generations_[which.index] < most_generations) free_.push_back(which.index);
  }
  [[nodiscard]] bool is_live(register_id which) const noexcept {
    return which.index < generations_.size() &&
           generations_[which.index] == which.generation && which.generation % 2 == 1;
  }
  /// Returns whether there is no name left, of that many indices.
  [[nodiscard]] bool is_full(std::size_t most) const noexcept {
    return free_.empty() && generations_.size() >= most;
  }
  /// Returns how many indices there are: the size of the workers' files.
  [[nodiscard]] std::size_t size() const noexcept { return generations_.size(); }

 private:
  static constexpr std::uint32_t most_generations =
      std::numeric_limits<std::uint32_t>::max() - 1;

  std::vector<std::uint32_t> generations_;
  std::vector<std::uint32_t> free_;
};

}  // namespace manyworlds::inline v0::detail
