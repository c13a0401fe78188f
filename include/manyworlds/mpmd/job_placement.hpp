// Job placement: which instance runs on which node, with which of its CPUs and GPUs.
#pragma once

#include <cstdint>
#include <exception>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "manyworlds/detail/config.hpp"
#include "manyworlds/mpmd/job_graph.hpp"
#include "manyworlds/mpmd/node_resources.hpp"

namespace manyworlds::inline v0 {

/// Names an instance of a role, as "decode.1".
struct instance_id {
  std::string role;
  std::uint32_t index = 0;

  [[nodiscard]] std::string text() const { return role + "." + std::to_string(index); }
  friend auto operator<=>(const instance_id&, const instance_id&) = default;
};

/// Where an instance runs.
struct instance_place {
  instance_id instance;
  std::string node;
  std::vector<std::uint32_t> cpus;  ///< its own; empty: it shares those of the node
  std::vector<std::string> gpus;    ///< by UUID
  std::uint64_t memory = 0;         ///< bytes that are reserved for it
  /// What decided, for people: "together with prefill.1; apart [prefill, decode]; best
  /// fit". A rule stands there if it has ruled out other nodes.
  std::string why;

  friend bool operator==(const instance_place&, const instance_place&) = default;
};

/// Thrown where instances cannot be placed. Its text names what is short, on each node,
/// and the rules in conflict: those without each of which there would be a placement.
///
/// "serving cannot be placed: short of 3 gpus: 8 needed, 5 there", or "decode.1 cannot be
/// placed: needs 2 gpus; a: 1 gpu free; b: apart from prefill (prefill.0 is there); by
/// the rule: apart [prefill, decode]".
class MANYWORLDS_EXPORT placement_error : public std::exception {
 public:
  explicit placement_error(std::string text) : text_(std::move(text)) {}
  [[nodiscard]] const char* what() const noexcept override { return text_.c_str(); }

 private:
  std::string text_;
};

/// Places instances of the graph on nodes, all or none: best fit, the largest bundle
/// first, with backtracking. The same input gives the same placement, and if there is one
/// it is found within 2,000,000 looks at nodes, or not at all.
///
/// `wanted` are to be placed; `taken` stand already, and stay. What is not taken of a
/// node's CPUs, memory and GPUs is free. Instances of a role with `per_group` above 1 are
/// placed as bundles; of roles that are `together`, those of equal index. A bundle of
/// which a member stands goes to its node.
///
/// The rules together, apart and exclusive always hold, for those that stand too. pack
/// and spread choose among what these leave, and are bettered for a bounded time.
///
/// CPUs come from one NUMA node where they can, near the GPU if there is one. An instance
/// that needs none goes where the fewest share those of the node.
///
/// Returns a place for each of `wanted`, in their order. Errors: placement_error.
/// Precondition: `graph.check()` finds nothing, and `nodes` are as `from_json` takes
/// them.
[[nodiscard]] std::vector<instance_place> place_instances(
    const job_graph& graph, std::span<const node_resources> nodes,
    std::span<const instance_id> wanted, std::span<const instance_place> taken = {});

/// Returns the instances that a job starts with, by the order of starts.
[[nodiscard]] std::vector<instance_id> instances_at_start(const job_graph& graph);

}  // namespace manyworlds::inline v0
