// Slurm's names: the short forms in which its variables list nodes, tasks and ports.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "manyworlds/detail/config.hpp"

namespace manyworlds::inline v0::detail {

/// The nodes that a list names, in its order, or what is wrong with it.
struct slurm_nodes {
  /// Lists that name more nodes, or a longer name, are refused.
  static constexpr std::size_t most_nodes = 64 * 1024;
  static constexpr std::size_t longest_name = 255;

  std::vector<std::string> names;
  /// What is expected instead, as the end of a sentence; empty if the list is right.
  std::string error;
};

/// Expands a list such as "node[01-03,7],b-2" or "rack[1-2]n[1-8]": a number keeps its
/// leading zeros, and the last bracket of a name counts fastest.
[[nodiscard]] slurm_nodes expand_slurm_nodes(std::string_view list);

/// Returns how many tasks the node with that number has, of "2(x3),1". Nothing if the
/// text is wrong or has no such node.
[[nodiscard]] std::optional<std::uint32_t> slurm_tasks_on(std::string_view counts,
                                                          std::uint32_t node) noexcept;

/// Returns the first of ports such as "30001-30003,30007"; nothing if the text is wrong.
[[nodiscard]] std::optional<std::uint16_t> first_slurm_port(
    std::string_view ports) noexcept;

}  // namespace manyworlds::inline v0::detail
