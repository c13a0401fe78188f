// Graph reader: makes a graph of a tree, and notes all that is wrong with it.
#pragma once

#include <cstddef>
#include <set>
#include <string>
#include <vector>

#include "manyworlds/mpmd/job_graph.hpp"
#include "mpmd/graph_tree.hpp"

namespace manyworlds::inline v0::detail {

/// What is noted while a graph is read.
struct graph_notes {
  graph_positions positions;
  std::vector<graph_objection> wrong;
  /// Fields of which the value is not known, since what stands there is wrong: what is
  /// wrong with the graph for want of them is no news.
  std::set<std::string, std::less<>> unsure;
  std::size_t unknown_fields = 0;

  /// Objects to a field.
  void object(const std::string& field, const std::string& what);
};

class graph_reader {
 public:
  explicit graph_reader(std::string source);

  /// Returns the graph. Errors: graph_error with all that is wrong in text and graph.
  [[nodiscard]] job_graph read(graph_tree tree);

 private:
  void read_root(const graph_value& root, job_graph& into);
  void read_roles(const graph_value& from, job_graph& into);
  void read_edges(const graph_value& from, job_graph& into);
  void read_places(const graph_value& from, job_graph& into);
  [[noreturn]] void refuse();

  graph_notes notes_;
};

}  // namespace manyworlds::inline v0::detail
