// Lane table: the lanes of one peer in one direction, by number.
#pragma once

#include <cstddef>
#include <cstdint>
#include <unordered_map>

namespace manyworlds::inline v0::detail::host {

/// Remembers the last lane asked for: traffic mostly stays on one, and the hash table
/// would cost a message 30 ns. Lanes stay where they are until they are erased.
template <class Lane>
class lane_table {
 public:
  /// Returns null if there is none.
  [[nodiscard]] Lane* find(std::uint64_t number) noexcept {
    if (last_ && last_->number == number) return last_;
    const auto found = lanes_.find(number);
    if (found == lanes_.end()) return nullptr;
    return last_ = &found->second;
  }
  /// Returns the lane, which is made if there is none.
  [[nodiscard]] Lane& at(std::uint64_t number) {
    if (Lane* known = find(number)) return *known;
    last_ = &lanes_[number];
    last_->number = number;
    return *last_;
  }
  void erase(std::uint64_t number) {
    last_ = nullptr;
    lanes_.erase(number);
  }
  [[nodiscard]] std::size_t size() const noexcept { return lanes_.size(); }

  template <class Visit>
  void for_each(Visit&& visit) {
    for (auto& entry : lanes_) visit(entry.second);
  }
  template <class Visit>
  void for_each(Visit&& visit) const {
    for (const auto& entry : lanes_) visit(entry.second);
  }

 private:
  std::unordered_map<std::uint64_t, Lane> lanes_;
  Lane* last_ = nullptr;
};

}  // namespace manyworlds::inline v0::detail::host
