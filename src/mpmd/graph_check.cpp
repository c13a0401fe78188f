#include "mpmd/graph_check.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>

#include "mpmd/context_store.hpp"
#include "mpmd/graph_fields.hpp"
#include "mpmd/spoken_text.hpp"

namespace manyworlds::inline v0 {

namespace detail {

check_notes::check_notes(const job_graph& graph, const graph_positions& positions,
                         const unsure_fields& unsure)
    : positions_(positions), unsure_(unsure) {
  for (const graph_role& each : graph.roles()) {
    role_names_.push_back(each.name);
    roles_.emplace(each.name, &each);
  }
}

bool check_notes::is_unsure(std::string_view field) const {
  for (std::string_view path = field;; path = parent_path(path)) {
    if (unsure_.contains(path)) return true;
    if (path.empty()) return false;
  }
}

void check_notes::object(const std::string& field, const std::string& what) {
  if (!is_unsure(field)) wrong_.push_back(positions_.object(field, what));
}

const graph_role* check_notes::find(std::string_view name) const {
  const auto found = roles_.find(name);
  return found == roles_.end() ? nullptr : found->second;
}

const graph_role* check_notes::need_role(const std::string& field,
                                         std::string_view speaker,
                                         const std::string& name) {
  const graph_role* const found = find(name);
  // Without a table of roles there is nothing to say about each of their names.
  if (found != nullptr || is_unsure("role")) return found;
  // Each search compares with all names.
  const bool searches = ++missed_ <= most_nearest_names;
  object(field, fmt::format("{}no role {}{}", speaker, in_quotes(name),
                            searches ? did_you_mean(name, role_names_) : ""));
  return found;
}

bool check_notes::is_count_sure(const graph_role& role) const {
  return !is_unsure(path_to(path_to("role", role.name), "count"));
}

void check_name(check_notes& notes, const std::string& field, std::string_view thing,
                const std::string& name) {
  const auto is_letter = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
  };
  const auto is_part = [&](char c) {
    return is_letter(c) || (c >= '0' && c <= '9') || c == '-' || c == '_';
  };
  if (name.empty()) return notes.object(field, fmt::format("the {} has no name", thing));
  const std::string speaker = fmt::format("{} {}: ", thing, in_quotes(name));
  if (name.size() > longest_graph_name) {
    return notes.object(field, fmt::format("{}the name has {} bytes, and may have {}",
                                           speaker, name.size(), longest_graph_name));
  }
  if (!is_letter(name[0])) {
    notes.object(field, speaker + "the name must begin with a letter");
  } else if (!std::ranges::all_of(name, is_part)) {
    notes.object(field, speaker + "the name may have letters, digits, '-' and '_'");
  }
}

void check_budget(check_notes& notes, const std::string& path, const std::string& speaker,
                  const retry_budget& budget) {
  if (budget.tries > most_tries) {
    notes.object(path_to(path, "tries"),
                 fmt::format("{}restart.tries must be at most {}, is {}", speaker,
                             most_tries, budget.tries));
  }
  if (budget.per <= duration::zero())
    notes.object(path_to(path, "per"), speaker + "restart.per must be above zero");
}

namespace {

/// A seat is free 5 s after its master fell silent, and the next one reads and announces.
constexpr duration shortest_absence = std::chrono::seconds(10);

/// Returns whether there is too much of it for each part to be looked at.
bool is_too_large(const job_graph& graph, check_notes& notes) {
  const auto is_above = [&notes](const char* field, const char* things, std::size_t is,
                                 std::size_t most) {
    if (is <= most) return false;
    notes.object(field,
                 fmt::format("{} {}, and a graph has at most {}", is, things, most));
    return true;
  };
  const bool roles = is_above("role", "roles", graph.roles().size(), most_roles);
  const bool edges = is_above("edge", "edges", graph.edges().size(), most_edges);
  const bool places =
      is_above("place", "rules of placement", graph.places().size(), most_places);
  return roles || edges || places;
}

}  // namespace

std::vector<graph_objection> check_graph(const job_graph& graph,
                                         const graph_positions& positions,
                                         const unsure_fields& unsure) {
  check_notes notes(graph, positions, unsure);
  if (is_too_large(graph, notes)) return notes.take();
  check_name(notes, "name", "job", graph.name());
  check_budget(notes, "restart", {}, graph.whole_job);
  if (graph.absence && *graph.absence < shortest_absence)
    notes.object("absence",
                 "absence must be \"hold\", or at least 10s: another master "
                 "may take that long to follow");
  check_roles(graph, notes);
  check_edges(graph, notes);
  check_places(graph, notes);
  auto all = notes.take();
  // A graph is one value of its job's context. What is objected to anyway may not even
  // have a text.
  const std::size_t size = all.empty() ? graph.to_json().size() : 0;
  if (size > context_longest_value) {
    all.push_back(positions.object(
        "", fmt::format("the graph has {} bytes as JSON, and at most {} are recorded",
                        size, context_longest_value)));
  }
  return all;
}

}  // namespace detail

std::vector<graph_objection> job_graph::check() const {
  return detail::check_graph(*this, positions_, {});
}

}  // namespace manyworlds::inline v0
