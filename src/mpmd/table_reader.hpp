// Table reader: takes the fields of a table, each as what it should be.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "mpmd/graph_reader.hpp"
#include "mpmd/graph_words.hpp"

namespace manyworlds::inline v0::detail {

/// Takes fields of a table, and notes what is wrong with them. A field that is not there
/// leaves its value as it is. At the end `finish` objects to fields that were not asked
/// for.
class table_reader {
 public:
  /// `path` leads to the table, as "role.decode"; `name` says it to people, as
  /// `role "decode": `. Anything but a table is objected to.
  table_reader(graph_notes& notes, const graph_value& table, std::string path,
               std::string name);

  void field(std::string_view name, std::string& out);
  void field(std::string_view name, std::vector<std::string>& out);
  void field(std::string_view name, std::map<std::string, std::string>& out);
  void field(std::string_view name, bool& out);
  void number(std::string_view name, std::uint32_t& out, std::uint32_t least,
              std::uint32_t most);
  void time(std::string_view name, duration& out);
  /// Takes a time, or that word, which means none.
  void time_or(std::string_view name, std::string_view word,
               std::optional<duration>& out);
  void size(std::string_view name, std::uint64_t& out);
  void count(std::string_view name, role_count& out);
  template <graph_enum Enum>
  void word(std::string_view name, Enum& out);
  /// Reads the fields of a table within.
  template <class Walk>
  void table(std::string_view name, Walk walk);

  /// Returns the field, which counts as asked for; nullptr if it is not there.
  const graph_value* take(std::string_view name);
  /// Objects to a field that is not there.
  void must_have(std::string_view name);
  void object(std::string_view name, const std::string& what);
  /// Returns the path of a field.
  [[nodiscard]] std::string path(std::string_view name) const;
  void finish();

 private:
  /// Objects to what stands there: "must be a text, is 3".
  void refuse(std::string_view name, std::string_view must_be, const graph_value& is);
  void refuse_word(std::string_view name, const graph_value& is,
                   const std::vector<std::string_view>& words);

  graph_notes& notes_;
  const graph_value& table_;
  std::string path_;
  std::string name_;
  std::vector<std::string_view> asked_;
};

template <graph_enum Enum>
void table_reader::word(std::string_view name, Enum& out) {
  const graph_value* const is = take(name);
  if (is == nullptr) return;
  std::optional<Enum> found;
  if (is->is(graph_value_kind::text)) found = named<Enum>(is->text);
  if (!found) return refuse_word(name, *is, all_words<Enum>());
  out = *found;
}

template <class Walk>
void table_reader::table(std::string_view name, Walk walk) {
  const graph_value* const is = take(name);
  if (is == nullptr) return;
  table_reader inner(notes_, *is, path(name), name_ + std::string(name) + '.');
  walk(inner);
  inner.finish();
}

}  // namespace manyworlds::inline v0::detail
