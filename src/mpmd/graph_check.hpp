// Graph check: all that keeps a graph from being run, before anything is started.
#pragma once

#include <cstddef>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "manyworlds/mpmd/job_graph.hpp"

namespace manyworlds::inline v0::detail {

using unsure_fields = std::set<std::string, std::less<>>;

/// Returns what is wrong, in the order of roles, edges and rules. `unsure` are fields
/// that a reader has objected to: nothing is said that follows from them.
[[nodiscard]] std::vector<graph_objection> check_graph(const job_graph& graph,
                                                       const graph_positions& positions,
                                                       const unsure_fields& unsure);

/// What the parts of the check share.
class check_notes {
 public:
  check_notes(const job_graph& graph, const graph_positions& positions,
              const unsure_fields& unsure);

  /// Objects to a field, unless a reader has.
  void object(const std::string& field, const std::string& what);
  /// Returns whether a reader has objected to the field, or to what it is part of.
  [[nodiscard]] bool is_unsure(std::string_view field) const;
  /// Returns the role; nullptr, with an objection to `field`, if there is none.
  const graph_role* need_role(const std::string& field, std::string_view speaker,
                              const std::string& name);
  /// Returns the role of that name; nullptr if there is none.
  [[nodiscard]] const graph_role* find(std::string_view name) const;
  /// Returns whether what was read of the role's count is what stands there.
  [[nodiscard]] bool is_count_sure(const graph_role& role) const;
  [[nodiscard]] std::vector<graph_objection> take() { return std::move(wrong_); }

 private:
  const graph_positions& positions_;
  const unsure_fields& unsure_;
  std::vector<std::string_view> role_names_;
  std::size_t missed_ = 0;
  std::map<std::string_view, const graph_role*> roles_;
  std::vector<graph_objection> wrong_;
};

void check_roles(const job_graph& graph, check_notes& notes);
void check_edges(const job_graph& graph, check_notes& notes);
void check_places(const job_graph& graph, check_notes& notes);

/// Objects to a name that is none. `thing` says what has it, as "role".
void check_name(check_notes& notes, const std::string& field, std::string_view thing,
                const std::string& name);
/// Objects to a budget without a time, or of more tries than are counted. `speaker`
/// begins the objection, as `role "a": `.
void check_budget(check_notes& notes, const std::string& path, const std::string& speaker,
                  const retry_budget& budget);

/// The names of an edge's worlds are made of these.
inline constexpr std::size_t longest_graph_name = 24;
inline constexpr std::size_t most_roles = 1024;
inline constexpr std::size_t most_edges = 4096;
inline constexpr std::size_t most_places = 256;
/// An edge of more worlds is a mistake, or better a group.
inline constexpr std::uint64_t most_worlds = std::uint64_t{1} << 20;

}  // namespace manyworlds::inline v0::detail
