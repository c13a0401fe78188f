// Node resources: what an agent has to give to instances.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
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

/// A GPU, by the name that CUDA_VISIBLE_DEVICES takes in any process.
struct gpu_resource {
  std::string uuid;
  std::uint64_t memory = 0;  ///< bytes; 0: not known, as of parts of a GPU (MIG)
  std::uint32_t numa = 0;    ///< the NUMA node that it is near to

  friend bool operator==(const gpu_resource&, const gpu_resource&) = default;
};

/// What a node has.
///
///     mw::node_resources here = mw::node_resources::of_this_machine("rack1-7");
///     here.labels.emplace_back("fast");
///     std::puts(here.text().c_str());  // rack1-7: 64 CPUs, 512 GiB, 8 GPUs
///
/// In JSON it is an object. Each of these fields may be missing where it is declared, and
/// any other is refused there.
///
/// `{"name": "rack1-7", "cpus": [[0, 1, 2, 3], [4, 5, 6, 7]], "memory": "512GiB",
/// "gpus": [{"uuid": "GPU-5ab0", "memory": "80GiB", "numa": 1}], "labels": ["fast"],
/// "address": "10.0.0.7"}`
///
/// "cpus" has a list for each NUMA node, in their order; "memory" is bytes, or a text
/// with KiB, MiB, GiB or TiB. It has at most 4096 CPUs, 64 GPUs and 64 labels. Names,
/// addresses, UUIDs and labels have 1 to 128 printable characters of ASCII, without
/// blanks and commas, and none stands twice.
struct node_resources {
  std::string name;
  std::vector<cpu_group> cpus;
  std::uint64_t memory = 0;  ///< bytes
  std::vector<gpu_resource> gpus;
  std::vector<std::string> labels;
  /// The host name or address by which other nodes reach it; empty: it is not told.
  std::string address{};

  /// Finds what this process may use. CPUs are those that it is bound to, by NUMA node.
  /// Memory is the machine's, or its control group's limit where that is less. GPUs come
  /// from NVML, which is looked for at run time; without it there are none.
  ///
  /// `visible` is the value of CUDA_VISIBLE_DEVICES, if it is set: it limits and orders
  /// the GPUs as CUDA does, and its indices count GPUs by their bus addresses. CUDA does
  /// so only with CUDA_DEVICE_ORDER=PCI_BUS_ID: by default it counts the fastest first.
  /// Where GPUs differ, name them by UUIDs, or set that variable. Errors:
  /// std::system_error.
  [[nodiscard]] static node_resources of_this_machine(
      std::string name, std::optional<std::string_view> visible = std::nullopt);
  /// Takes what is declared in JSON as above; what is not declared stays as it is.
  /// Errors: std::invalid_argument naming the field; nothing has changed then.
  void declare(std::string_view json);

  /// Returns all of it as JSON, on one line, that `from_json` reads. Errors:
  /// std::invalid_argument naming a field that is outside the bounds above.
  [[nodiscard]] std::string to_json() const;
  /// Reads what `to_json` has written, possibly by another version of the library: fields
  /// that it does not know are passed over. Errors: std::invalid_argument naming the
  /// field.
  [[nodiscard]] static node_resources from_json(std::string_view json);

  [[nodiscard]] std::size_t cpu_count() const noexcept;
  /// Returns it for people, on one line.
  [[nodiscard]] std::string text() const;

  friend bool operator==(const node_resources&, const node_resources&) = default;
};

}  // namespace manyworlds::inline v0
