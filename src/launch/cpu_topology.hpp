// CPU topology: which CPUs of a machine share a core, a cache, a NUMA node and a socket.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "manyworlds/launch/launch_agent.hpp"

namespace manyworlds::inline v0::detail {

/// One CPU as the kernel counts them: a hardware thread.
struct logical_cpu {
  unsigned number = 0;
  unsigned node = 0;    ///< NUMA
  unsigned socket = 0;  ///< the physical package
  unsigned core = 0;    ///< the least CPU of its core
  unsigned cache = 0;   ///< the least CPU of its last cache
};

/// A machine as its kernel describes it.
struct cpu_topology {
  /// Those that this process may use, by number.
  std::vector<logical_cpu> cpus;
  /// The NUMA node of each GPU that workers see, in the order in which they see them.
  std::vector<unsigned> gpu_nodes;
};

/// Returns the CPUs that this process may use, by number.
[[nodiscard]] std::vector<unsigned> cpus_of_this_process();

/// Reads the topology from the file systems below `root`. `allowed` are the CPUs that
/// this process may use, and `visible` the value of CUDA_VISIBLE_DEVICES. A machine
/// without NUMA is one node.
[[nodiscard]] cpu_topology read_cpu_topology(const std::string& root,
                                             const std::vector<unsigned>& allowed,
                                             const std::optional<std::string>& visible);

/// Returns the CPUs of one of `workers` workers, as torch/numa/binding.py of torch 2.14
/// chooses them for the GPU of that number. Errors: std::invalid_argument if there are
/// none.
[[nodiscard]] std::vector<unsigned> cpus_of_worker(const cpu_topology& machine,
                                                   numa_binding how, int local_rank,
                                                   int workers);

/// Returns the CPUs of each worker of a job on this machine; empty if they are not bound.
/// Errors: as above.
[[nodiscard]] std::vector<std::vector<unsigned>> cpus_of_workers(
    const launch_options& job);

/// Reads "0-2,4". What is no number ends it.
[[nodiscard]] std::vector<unsigned> numbers_in_ranges(std::string_view text);

}  // namespace manyworlds::inline v0::detail
