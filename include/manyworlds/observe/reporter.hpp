// Reporter: collects what a runtime's dump says.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "manyworlds/observe/inquiry.hpp"
#include "manyworlds/observe/report.hpp"

namespace manyworlds::inline v0 {

class runtime_core;

/// Belongs to its runtime core. Pending operations, worlds and members are read as they
/// are, under mutexes that nobody holds for long; what only a reactor may look at is
/// asked of it, and is unknown if it is stuck in user code.
class reporter {
 public:
  explicit reporter(runtime_core& rt);
  reporter(const reporter&) = delete;
  reporter& operator=(const reporter&) = delete;

  /// From any thread; takes at most a fifth of a second longer than reading what there
  /// is.
  [[nodiscard]] runtime_report report();

 private:
  using transfers = std::map<std::uint64_t, transfer_report>;
  struct service_part {
    std::vector<link_report> links;
    /// By world instance, then by rank.
    std::map<std::uint64_t, std::vector<bool>> left;
  };

  static void add(const transfers& moved, world_report& to);
  static void add(const service_part& served, world_report& to);
  [[nodiscard]] transfers look_at_transfers() const;
  [[nodiscard]] service_part look_at_service() const;
  [[nodiscard]] std::vector<operation_report> recent_operations() const;

  runtime_core& core_;
  const time_point since_;
  inquiry<transfers> user_;
  inquiry<service_part> service_;
};

}  // namespace manyworlds::inline v0
