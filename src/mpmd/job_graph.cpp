#include "manyworlds/mpmd/job_graph.hpp"

#include <algorithm>
#include <utility>

namespace manyworlds::inline v0 {

graph_role& graph_role::run(std::vector<std::string> program_and_arguments) {
  command = std::move(program_and_arguments);
  return *this;
}

graph_role& graph_role::in_folder(std::string path) {
  folder = std::move(path);
  return *this;
}

graph_role& graph_role::variable(std::string variable_name, std::string value) {
  variables.insert_or_assign(std::move(variable_name), std::move(value));
  return *this;
}

graph_role& graph_role::count(std::uint32_t all) { return count(all, all, all); }

graph_role& graph_role::count(std::uint32_t min, std::uint32_t start, std::uint32_t max) {
  counts = {min, start, max};
  return *this;
}

graph_role& graph_role::need(role_needs what) {
  needs = std::move(what);
  return *this;
}

graph_role& graph_role::restart(restart_when when, retry_budget within) {
  restarts = when;
  budget = within;
  return *this;
}

graph_role& graph_role::after(std::string role) {
  after_roles.push_back(std::move(role));
  return *this;
}

graph_role& graph_role::driver() {
  is_driver = true;
  return *this;
}

graph_role& graph_role::session() {
  kind = role_kind::spmd;
  return *this;
}

graph_role& graph_role::controller(std::string role) {
  controller_role = std::move(role);
  return *this;
}

graph_role& graph_role::waits_until_ready(duration limit) {
  ready = ready_when::told;
  ready_within = limit;
  return *this;
}

graph_edge& graph_edge::bulk(edge_shape of) {
  kind = edge_kind::bulk;
  shape = of;
  return *this;
}

graph_edge& graph_edge::calls() {
  kind = edge_kind::calls;
  // It has none, and one that is left from `bulk` would be written and not read.
  shape = edge_shape::pairs;
  return *this;
}

graph_edge& graph_edge::restart_together() {
  on_loss = edge_loss::restart_together;
  return *this;
}

graph_role& job_graph::role(std::string_view name) {
  const auto is_it = [&](const graph_role& each) { return each.name == name; };
  const auto found = std::find_if(roles_.begin(), roles_.end(), is_it);
  if (found != roles_.end()) return *found;
  graph_role& made = roles_.emplace_back();
  made.name = name;
  return made;
}

graph_edge& job_graph::edge(std::string name, std::string from, std::string to) {
  graph_edge& made = edges_.emplace_back();
  made.name = std::move(name);
  made.from = std::move(from);
  made.to = std::move(to);
  return made;
}

job_graph& job_graph::place(std::vector<std::string> roles, place_rule rule,
                            place_level level) {
  places_.push_back({std::move(roles), rule, level});
  return *this;
}

const graph_role* job_graph::find_role(std::string_view name) const noexcept {
  for (const graph_role& each : roles_)
    if (each.name == name) return &each;
  return nullptr;
}

const graph_edge* job_graph::find_edge(std::string_view name) const noexcept {
  for (const graph_edge& each : edges_)
    if (each.name == name) return &each;
  return nullptr;
}

}  // namespace manyworlds::inline v0
