// Lane set: lanes of one peer by number; the oldest is forgotten first.
#pragma once

#include <cstddef>
#include <cstdint>
#include <list>
#include <unordered_map>

#include "manyworlds/detail/assertion.hpp"

namespace manyworlds::inline v0::detail::host {

/// A set with a limit, from which lanes may be removed again.
class lane_set {
 public:
  explicit lane_set(std::size_t limit = 0) noexcept : limit_(limit) {}
  /// Sets the limit. Precondition: it is empty.
  void limit_to(std::size_t limit) noexcept { limit_ = limit; }

  [[nodiscard]] bool contains(std::uint64_t lane) const {
    return lanes_.count(lane) != 0;
  }
  [[nodiscard]] std::size_t size() const noexcept { return lanes_.size(); }

  /// Returns the lane that was forgotten for it, or the lane itself if none was.
  std::uint64_t insert(std::uint64_t lane) {
    if (contains(lane)) return lane;
    order_.push_back(lane);
    try {
      lanes_.emplace(lane, std::prev(order_.end()));
    } catch (...) {
      order_.pop_back();
      throw;
    }
    if (lanes_.size() <= limit_) return lane;
    const std::uint64_t oldest = order_.front();
    erase(oldest);
    MW_ASSERT(lanes_.size() == limit_, "one lane is forgotten for one that is added");
    return oldest;
  }
  void erase(std::uint64_t lane) {
    const auto found = lanes_.find(lane);
    if (found == lanes_.end()) return;
    order_.erase(found->second);
    lanes_.erase(found);
    MW_ASSERT(order_.size() == lanes_.size(), "each lane stands in the order once");
  }

 private:
  std::size_t limit_;
  std::list<std::uint64_t> order_;
  std::unordered_map<std::uint64_t, std::list<std::uint64_t>::iterator> lanes_;
};

}  // namespace manyworlds::inline v0::detail::host
