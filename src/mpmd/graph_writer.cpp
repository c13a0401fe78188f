#include <algorithm>
#include <string>
#include <string_view>
#include <utility>

#include "manyworlds/mpmd/job_graph.hpp"
#include "mpmd/graph_fields.hpp"
#include "mpmd/graph_tree.hpp"
#include "mpmd/graph_units.hpp"
#include "mpmd/graph_words.hpp"

namespace manyworlds::inline v0 {

namespace detail {

namespace {

/// Makes a table of what is walked.
class table_writer {
 public:
  void field(std::string_view name, const std::string& value) {
    add(name, graph_value::of_text(value));
  }
  void field(std::string_view name, const std::vector<std::string>& values) {
    graph_value list = graph_value::empty(graph_value_kind::list);
    for (const std::string& each : values)
      list.items.push_back(graph_value::of_text(each));
    add(name, std::move(list));
  }
  void field(std::string_view name, const std::map<std::string, std::string>& values) {
    table_writer inner;
    for (const auto& [key, value] : values) inner.field(key, value);
    add(name, std::move(inner.made_));
  }
  void field(std::string_view name, bool value) {
    add(name, graph_value::of_truth(value));
  }
  void number(std::string_view name, std::uint32_t value, std::uint32_t, std::uint32_t) {
    add(name, graph_value::of_number(value));
  }
  void time(std::string_view name, duration value) {
    add(name, graph_value::of_text(exact_duration_text(value)));
  }
  void size(std::string_view name, std::uint64_t value) {
    add(name, graph_value::of_text(exact_size_text(value)));
  }
  void count(std::string_view name, const role_count& value) {
    if (value.min == value.start && value.start == value.max)
      return add(name, graph_value::of_number(value.start));
    table_writer inner;
    walk_count(inner, value);
    add(name, std::move(inner.made_));
  }
  template <graph_enum Enum>
  void word(std::string_view name, Enum value) {
    add(name, graph_value::of_text(std::string(word_of(value))));
  }
  template <class Walk>
  void table(std::string_view name, Walk walk) {
    table_writer inner;
    walk(inner);
    add(name, std::move(inner.made_));
  }
  void add(std::string_view name, graph_value value) {
    made_.fields.push_back({std::string(name), {}, std::move(value)});
  }

  [[nodiscard]] graph_value take() { return std::move(made_); }

 private:
  graph_value made_ = graph_value::empty(graph_value_kind::table);
};

bool is_equal(const graph_value& a, const graph_value& b) {
  const auto is_equal_field = [](const graph_field& x, const graph_field& y) {
    return x.name == y.name && is_equal(x.value, y.value);
  };
  return a.kind == b.kind && a.truth == b.truth && a.number == b.number &&
         a.text == b.text && std::ranges::equal(a.items, b.items, is_equal) &&
         std::ranges::equal(a.fields, b.fields, is_equal_field);
}

/// Leaves out what is as it is by default.
graph_value without_defaults(graph_value table, const graph_value& defaults) {
  graph_value made = graph_value::empty(graph_value_kind::table);
  for (graph_field& each : table.fields) {
    const graph_value* const usual = defaults.find(each.name);
    if (usual != nullptr && is_equal(each.value, *usual)) continue;
    if (usual != nullptr && usual->is(graph_value_kind::table))
      each.value = without_defaults(std::move(each.value), *usual);
    made.fields.push_back(std::move(each));
  }
  return made;
}

graph_value value_of(const graph_role& role) {
  const graph_role usual;
  table_writer defaults;
  walk_role(defaults, usual);
  table_writer made;
  walk_role(made, role);
  return without_defaults(made.take(), defaults.take());
}

graph_value value_of(const graph_edge& edge) {
  const graph_edge usual;
  table_writer defaults;
  walk_edge(defaults, usual);
  table_writer made;
  walk_edge(made, edge);
  return without_defaults(made.take(), defaults.take());
}

graph_value value_of(const graph_place& place) {
  table_writer made;
  walk_place(made, place);
  return made.take();
}

graph_value value_of(const job_graph& graph) {
  table_writer root;
  root.field("name", graph.name());
  if (graph.whole_job != job_graph().whole_job)
    root.table("restart", [&](auto& in) { walk_budget(in, graph.whole_job); });
  if (graph.absence) root.time("absence", *graph.absence);
  table_writer roles;
  for (const graph_role& each : graph.roles()) roles.add(each.name, value_of(each));
  if (!graph.roles().empty()) root.add("role", roles.take());
  table_writer edges;
  for (const graph_edge& each : graph.edges()) edges.add(each.name, value_of(each));
  if (!graph.edges().empty()) root.add("edge", edges.take());
  graph_value places = graph_value::empty(graph_value_kind::list);
  for (const graph_place& each : graph.places()) places.items.push_back(value_of(each));
  if (!graph.places().empty()) root.add("place", std::move(places));
  return root.take();
}

}  // namespace

}  // namespace detail

std::string job_graph::to_toml() const {
  return detail::write_toml(detail::value_of(*this));
}

std::string job_graph::to_json() const {
  return detail::write_json(detail::value_of(*this));
}

}  // namespace manyworlds::inline v0
