// Node resources: what an agent has to give to instances.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "manyworlds/detail/config.hpp"

namespace manyworlds::inline v0 {

/// The CPUs of one NUMA node.
struct cpu_group {
  std::uint32_t numa = 0;
  std::vector<std::uint32_t> cpus;

  friend bool operator==(const cpu_group&, const cpu_group&) = default;
};

/// A GPU, by the name that CUDA_VISIBLE_DEVICES takes on any process.
struct gpu_resource {
  std::string uuid;
  std::uint64_t memory = 0;  ///< bytes
  std::uint32_t numa = 0;    ///< the NUMA node that it is near to

  friend bool operator==(const gpu_resource&, const gpu_resource&) = default;
};

/// What a node has.
///
///     mw::node_resources here = mw::node_resources::of_this_machine("rack1-7");
///     std::puts(here.text().c_str());  // rack1-7: 64 CPUs in 2, 512 GiB, 8 GPUs
struct node_resources {
  std::string name;
  std::vector<cpu_group> cpus;
  std::uint64_t memory = 0;  ///< bytes
  std::vector<gpu_resource> gpus;
  std::vector<std::string> labels;

  /// Finds what this process may use: the CPUs that it is bound to, by NUMA node; the
  /// memory of the machine, or of its control group where that is less; the GPUs, from
  /// NVML (which is looked for at run time), limited to those that CUDA_VISIBLE_DEVICES
  /// names in `visible`. Without NVML there are none. Errors: std::system_error.
  [[nodiscard]] static node_resources of_this_machine(
      std::string name, const std::vector<std::string>* visible = nullptr);
  /// Reads what is declared in JSON: an object with "cpus" (a list of lists, one for each
  /// NUMA node), "memory" ("64GiB"), "gpus" (a list of objects with "uuid", "memory" and
  /// "numa") and "labels". What is not declared is as found. Errors:
  /// std::invalid_argument naming the field.
  void declare(std::string_view json);

  [[nodiscard]] std::size_t cpu_count() const noexcept;
  [[nodiscard]] std::string text() const;

  friend bool operator==(const node_resources&, const node_resources&) = default;
};

}  // namespace manyworlds::inline v0
