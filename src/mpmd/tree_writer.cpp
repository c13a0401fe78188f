#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <string_view>

#include "mpmd/graph_tree.hpp"
#include "mpmd/spoken_text.hpp"

namespace manyworlds::inline v0::detail {

namespace {

/// Writes a text between quotes. Both languages know these escapes.
std::string escaped(std::string_view text) {
  std::string made = "\"";
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\') {
      made += '\\';
      made += c;
    } else if (c == '\n') {
      made += "\\n";
    } else if (c == '\t') {
      made += "\\t";
    } else if (byte < 0x20 || byte == 0x7f) {
      made += fmt::format("\\u{:04x}", byte);
    } else {
      made += c;
    }
  }
  return made + '"';
}

/// What the two languages write otherwise within a line.
struct style {
  std::string_view assign;
  std::string (*name)(std::string_view);
};

std::string toml_name(std::string_view name) {
  // A path quotes where TOML does; the escapes are those of texts.
  return path_part(name) == name ? std::string(name) : escaped(name);
}

constexpr style toml{" = ", toml_name};
constexpr style json{":", escaped};

std::string in_line(const graph_value& value, const style& as) {
  std::string made;
  switch (value.kind) {
    case graph_value_kind::nothing:
      return "null";
    case graph_value_kind::boolean:
      return value.truth ? "true" : "false";
    case graph_value_kind::integer:
      return std::to_string(value.number);
    case graph_value_kind::real:
    case graph_value_kind::date:
      return value.text;
    case graph_value_kind::text:
      return escaped(value.text);
    case graph_value_kind::list:
      for (const graph_value& each : value.items)
        made += (made.empty() ? "" : ", ") + in_line(each, as);
      return '[' + made + ']';
    case graph_value_kind::table:
      for (const graph_field& each : value.fields) {
        if (!made.empty()) made += ", ";
        made += as.name(each.name);
        made += as.assign;
        made += in_line(each.value, as);
      }
      return '{' + made + '}';
  }
  return made;
}

std::string section(const std::string& head, const graph_value& table) {
  std::string made = '\n' + head + '\n';
  for (const graph_field& each : table.fields) {
    made += fmt::format("{} = {}\n", toml_name(each.name), in_line(each.value, toml));
  }
  return made;
}

bool is_table(const graph_value& value) { return value.is(graph_value_kind::table); }

}  // namespace

std::string write_toml(const graph_value& root) {
  std::string made;
  std::string sections;
  for (const auto& [name, where, value] : root.fields) {
    const bool has_sections =
        is_table(value) &&
        std::ranges::all_of(value.fields, is_table, &graph_field::value);
    if (has_sections) {
      for (const graph_field& each : value.fields) {
        sections += section(fmt::format("[{}.{}]", toml_name(name), toml_name(each.name)),
                            each.value);
      }
    } else if (is_table(value)) {
      sections += section(fmt::format("[{}]", toml_name(name)), value);
    } else if (value.is(graph_value_kind::list) &&
               std::ranges::all_of(value.items, is_table)) {
      for (const graph_value& each : value.items)
        sections += section(fmt::format("[[{}]]", toml_name(name)), each);
    } else {
      made += fmt::format("{} = {}\n", toml_name(name), in_line(value, toml));
    }
  }
  return made + sections;
}

std::string write_json(const graph_value& root) { return in_line(root, json); }

}  // namespace manyworlds::inline v0::detail
