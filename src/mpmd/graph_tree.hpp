// Graph tree: what a text of TOML or JSON says, as values that know where they stood.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "manyworlds/mpmd/graph_error.hpp"

namespace manyworlds::inline v0::detail {

using graph_position = graph_positions::position;

enum class graph_value_kind : std::uint8_t {
  nothing,
  boolean,
  integer,
  real,
  text,
  list,
  table,
  date,
};

struct graph_field;

/// A value of either language.
struct graph_value {
  graph_value_kind kind = graph_value_kind::nothing;
  graph_position where;
  bool truth = false;
  std::int64_t number = 0;
  std::string text;  ///< of a text; of a real as it is written
  std::vector<graph_value> items;
  std::vector<graph_field> fields;  ///< in the order in which they stood

  [[nodiscard]] static graph_value of_text(std::string text);
  [[nodiscard]] static graph_value of_number(std::int64_t number);
  [[nodiscard]] static graph_value of_truth(bool truth);
  [[nodiscard]] static graph_value empty(graph_value_kind kind);

  [[nodiscard]] bool is(graph_value_kind other) const noexcept { return kind == other; }
  /// Returns the field of that name; nullptr if there is none.
  [[nodiscard]] const graph_value* find(std::string_view name) const noexcept;
};

/// A field of a table.
struct graph_field {
  std::string name;
  graph_position where;  ///< of the name
  graph_value value;
};

/// A text as a tree. Where `is_read` is false, `wrong` says why, and `root` is nothing.
struct graph_tree {
  graph_value root;
  bool is_read = false;
  std::vector<graph_objection> wrong;
};

/// Texts of more bytes are not read, so that no file can keep a master busy.
inline constexpr std::size_t longest_graph_text = std::size_t{4} << 20;
/// Deeper values are not read: trees are walked by functions that call themselves.
inline constexpr std::size_t deepest_graph_text = 32;
/// Longer names of fields are not read, and are no names of a graph.
inline constexpr std::size_t longest_field_name = 256;

/// Reads a text. Columns count characters, from 1 on, as editors do.
[[nodiscard]] graph_tree read_toml_tree(std::string_view text, const std::string& source);
[[nodiscard]] graph_tree read_json_tree(std::string_view text, const std::string& source);

/// Writes a table.
[[nodiscard]] std::string write_toml(const graph_value& root);
[[nodiscard]] std::string write_json(const graph_value& root);

}  // namespace manyworlds::inline v0::detail
