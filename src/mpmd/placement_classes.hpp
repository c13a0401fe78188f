// Placement classes: nodes between which placement sees no difference.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <vector>

namespace manyworlds::inline v0::detail {

/// Sorts nodes by their facts, so that a search looks at one node of each class. As nodes
/// of a job are mostly alike, classes are few however many nodes there are.
class node_classes {
 public:
  /// All that verdicts and ranks of a node depend on, beside what holds for all nodes.
  using node_facts = std::vector<std::uint64_t>;
  using class_map = std::map<node_facts, std::set<std::uint32_t>>;

  node_classes() = default;
  // The nodes know their places in the map.
  node_classes(const node_classes&) = delete;
  node_classes& operator=(const node_classes&) = delete;

  /// Adds the next node: they are numbered from 0.
  void add(node_facts facts);
  /// Precondition: the node was added.
  void move(std::uint32_t node, node_facts facts);
  /// Returns the nodes of each class; no class is empty.
  [[nodiscard]] const class_map& all() const noexcept { return nodes_; }

 private:
  class_map nodes_;
  std::vector<class_map::iterator> class_of_;  ///< by node
};

}  // namespace manyworlds::inline v0::detail
