// Instance regions: which instances are started again together.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "mpmd/job_context.hpp"

namespace manyworlds::inline v0::detail {

/// Numbers the regions of a job's instances: the closure over its edges of
/// `restart_together`. Of an edge that is aligned those of equal index belong together,
/// of any other all instances of both roles do. Neither order nor data make a region.
class instance_regions {
 public:
  explicit instance_regions(const job_context& job);

  /// Returns the instances that restart with this one, itself included.
  [[nodiscard]] std::span<const std::size_t> of(std::size_t instance) const {
    return members_[region_[instance]];
  }
  /// Returns the number of its region.
  [[nodiscard]] std::size_t number_of(std::size_t instance) const {
    return region_[instance];
  }
  [[nodiscard]] std::size_t count() const noexcept { return members_.size(); }

 private:
  std::vector<std::size_t> region_;                // by instance
  std::vector<std::vector<std::size_t>> members_;  // by region
};

}  // namespace manyworlds::inline v0::detail
