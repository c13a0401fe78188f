// torchrun's keys: what the agents of its backend "static" tell each other in their
// store.
#pragma once

#include <string>
#include <string_view>

#include "manyworlds/launch/round.hpp"

namespace manyworlds::inline v0::detail {

/// The keys of a run, and what stands in them. Source: torch 2.6.0,
/// torch/distributed/elastic/agent/server/api.py (`_assign_worker_ranks`,
/// `_exit_barrier`) and utils/store.py (`barrier`). torchrun 1.13 has other keys.
///
/// Each agent tells its role and its workers, as a JSON object; torchrun reads three
/// fields of it, and ours have an id and a host beside them. Node 0 tells each node the
/// ranks of its workers, as a JSON array of four.
struct torchrun_keys {
  explicit torchrun_keys(const std::string& run_id) : prefix(run_id + "/torchelastic/") {}

  [[nodiscard]] std::string role(int place) const;
  [[nodiscard]] std::string ranks(int place) const;
  /// The barrier at the end: a count, and a key that the last one sets.
  [[nodiscard]] std::string finished() const;
  [[nodiscard]] std::string all_finished() const;

  std::string prefix;
};

/// Errors of all: std::runtime_error in a build without nlohmann-json.
[[nodiscard]] std::string torchrun_role(const round_node& node);
/// Returns the node of a place. torchrun's has no id of its own: it gets one that begins
/// with `torchrun_id`. Errors: std::invalid_argument if the text is no such object.
[[nodiscard]] round_node node_of_torchrun_role(std::string_view text, int place);
[[nodiscard]] std::string torchrun_ranks(const round& r, const round_node& node);
/// Says whether both texts give a node the same ranks, however they are written.
[[nodiscard]] bool are_same_ranks(std::string_view one, std::string_view other);

inline constexpr std::string_view torchrun_id = "torchrun-";

}  // namespace manyworlds::inline v0::detail
