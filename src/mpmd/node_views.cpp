#include "mpmd/node_views.hpp"

#include <algorithm>
#include <utility>

namespace manyworlds::inline v0::detail {

bool node_view::is_under_way(std::size_t instance) const {
  const auto order = told.find(instance);
  return order != told.end() && order->second.kind == agent_order::what::ensure &&
         !instances.contains(instance);
}

void node_views::came(const node_resources& resources, std::string agent,
                      const std::vector<std::pair<std::size_t, instance_report>>& has) {
  node_view& view = nodes_[resources.name];
  view.resources = resources;
  view.agent = std::move(agent);
  view.has_come = true;
  view.instances.clear();
  view.told.clear();
  for (const auto& [instance, report] : has) heard(resources.name, instance, report);
}

void node_views::expect(std::string_view node, recorded_time since) {
  const auto [at, is_new] = nodes_.try_emplace(std::string(node));
  if (is_new) at->second.absent_since = since;
}

void node_views::lost(std::string_view node, bool is_dead, recorded_time now) {
  node_view* const view = find(node);
  if (view == nullptr) return;
  view->agent.clear();
  view->instances.clear();
  view->told.clear();
  view->absent_since = now;
  view->is_dead = is_dead;
}

bool node_views::expects_any() const noexcept {
  return std::any_of(nodes_.begin(), nodes_.end(), [](const auto& each) {
    return !each.second.has_come && !each.second.is_dead;
  });
}

bool node_views::is_any_away() const noexcept {
  return std::any_of(nodes_.begin(), nodes_.end(), [](const auto& each) {
    return !each.second.is_there() && !each.second.is_dead;
  });
}

bool node_views::are_all_dead() const noexcept {
  return std::all_of(nodes_.begin(), nodes_.end(), [](const auto& each) {
    return !each.second.is_there() && each.second.is_dead;
  });
}

bool node_views::heard(std::string_view node, std::size_t instance,
                       instance_report report) {
  node_view* const view = find(node);
  if (view == nullptr || !view->is_there()) return false;
  if (report.life == instance_life::ended)
    ends_.push_back({instance, report.incarnation});
  view->instances.insert_or_assign(instance, std::move(report));
  return true;
}

node_view* node_views::find(std::string_view node) {
  const auto at = nodes_.find(node);
  return at == nodes_.end() ? nullptr : &at->second;
}

const node_view* node_views::find(std::string_view node) const {
  const auto at = nodes_.find(node);
  return at == nodes_.end() ? nullptr : &at->second;
}

std::vector<node_resources> node_views::resources() const {
  std::vector<node_resources> all;
  for (const auto& [name, view] : nodes_)
    if (view.is_there()) all.push_back(view.resources);
  return all;
}

const instance_report* node_views::current(std::size_t instance,
                                           const instance_record& record) const {
  const node_view* const view = find(record.place.node);
  if (view == nullptr) return nullptr;
  const auto at = view->instances.find(instance);
  const bool is_it = at != view->instances.end() &&
                     at->second.incarnation == record.incarnation &&
                     view->agent == record.agent;
  return is_it ? &at->second : nullptr;
}

}  // namespace manyworlds::inline v0::detail
