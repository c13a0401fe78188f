// Known lanes: the lanes of one peer on which something was received or is awaited.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <unordered_set>

#include "manyworlds/detail/assertion.hpp"

namespace manyworlds::inline v0::detail::host {

/// A set with a limit: beyond it the lane that became known first is forgotten, unless
/// `in_use`, asked right before, says that it is in use. A peer that uses a new lane
/// per request must not grow it without end.
class known_lanes {
 public:
  explicit known_lanes(std::size_t limit = 0) noexcept : limit_(limit) {}
  /// Sets the limit. Precondition: it is empty.
  void limit_to(std::size_t limit) noexcept { limit_ = limit; }

  [[nodiscard]] bool contains(std::uint64_t lane) const {
    return lanes_.count(lane) != 0;
  }
  [[nodiscard]] std::size_t size() const noexcept { return lanes_.size(); }

  template <class InUse>
  void insert(std::uint64_t lane, InUse&& in_use) {
    if (contains(lane)) return;
    order_.push_back(lane);
    try {
      lanes_.insert(lane);
    } catch (...) {
      order_.pop_back();
      throw;
    }
    // A few tries at most: if those lanes are in use, the set grows with their users.
    for (int looks = 8; lanes_.size() > limit_ && looks > 0; --looks) {
      const std::uint64_t oldest = order_.front();
      // The last place first: if there is no memory for it, the lane keeps the first.
      if (in_use(oldest)) {
        order_.push_back(oldest);
      } else {
        lanes_.erase(oldest);
      }
      order_.pop_front();
    }
    MW_ASSERT(order_.size() == lanes_.size(), "each known lane stands in the order once");
  }

 private:
  std::size_t limit_;
  std::unordered_set<std::uint64_t> lanes_;
  std::deque<std::uint64_t> order_;
};

}  // namespace manyworlds::inline v0::detail::host
