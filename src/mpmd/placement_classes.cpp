#include "mpmd/placement_classes.hpp"

#include <utility>

namespace manyworlds::inline v0::detail {

void node_classes::add(node_facts facts) {
  const auto node = static_cast<std::uint32_t>(class_of_.size());
  const auto found = nodes_.try_emplace(std::move(facts)).first;
  found->second.insert(node);
  class_of_.push_back(found);
}

void node_classes::move(std::uint32_t node, node_facts facts) {
  const auto from = class_of_[node];
  const auto to = nodes_.try_emplace(std::move(facts)).first;
  to->second.insert(from->second.extract(node));
  if (from->second.empty()) nodes_.erase(from);
  class_of_[node] = to;
}

}  // namespace manyworlds::inline v0::detail
