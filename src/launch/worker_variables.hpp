// Worker variables: the environment that a launcher gives to one worker.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "manyworlds/launch/launch_agent.hpp"
#include "manyworlds/launch/round.hpp"

namespace manyworlds::inline v0::detail {

/// What differs from one start of a worker to the next.
struct worker_place {
  int local_rank = 0;
  /// Of the group's starts: 0 for the first.
  std::size_t attempt = 0;
  /// Restarts before this attempt. That nodes come and go is none.
  std::size_t restarts = 0;
  /// Of the processes that have held this rank within the attempt: 1 for the first.
  std::size_t incarnation = 1;
  std::string store_host;
  std::uint16_t store_port = 0;
  std::string error_file;
  std::string result_file;  ///< empty if no result is taken
};

/// Returns the variables of torchrun 2.6.0 (elastic/agent/server/local_elastic_agent.py,
/// `_start_workers`) and ours.
[[nodiscard]] launch_variables variables_of_worker(const launch_options& job,
                                                   const round& r, const round_node& node,
                                                   const worker_place& where);

/// Returns the devices that workers may share among them, one after the other: of
/// HIP_VISIBLE_DEVICES, which wins where it is set, or of CUDA_VISIBLE_DEVICES. Nothing
/// where neither restricts them. Source: torch 2.15, elastic/agent/server/
/// local_elastic_agent.py (`_set_local_rank_env`).
[[nodiscard]] std::optional<std::vector<std::string>> visible_devices(
    const launch_variables& starters);

/// Returns the argument with the number in place of `${local_rank}`.
[[nodiscard]] std::string with_local_rank(std::string argument, int local_rank);

}  // namespace manyworlds::inline v0::detail
