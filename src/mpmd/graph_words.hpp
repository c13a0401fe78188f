// Graph words: the enumerators of a graph by the words that stand in files.
#pragma once

#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "manyworlds/mpmd/job_graph.hpp"

namespace manyworlds::inline v0::detail {

template <class Enum>
struct graph_word {
  Enum value;
  std::string_view text;
};

inline constexpr graph_word<edge_kind> edge_kind_words[] = {
    {edge_kind::bulk, "bulk"},
    {edge_kind::calls, "calls"},
};
inline constexpr graph_word<edge_shape> edge_shape_words[] = {
    {edge_shape::pairs, "pairs"},
    {edge_shape::aligned, "aligned"},
    {edge_shape::group, "group"},
};
inline constexpr graph_word<edge_loss> edge_loss_words[] = {
    {edge_loss::reform, "reform"},
    {edge_loss::restart_together, "restart_together"},
};
inline constexpr graph_word<place_rule> place_rule_words[] = {
    {place_rule::together, "together"},   {place_rule::apart, "apart"},
    {place_rule::pack, "pack"},           {place_rule::spread, "spread"},
    {place_rule::exclusive, "exclusive"},
};
inline constexpr graph_word<place_level> place_level_words[] = {
    {place_level::node, "node"},
    {place_level::gpu, "gpu"},
};
inline constexpr graph_word<role_kind> role_kind_words[] = {
    {role_kind::processes, "processes"},
    {role_kind::spmd, "spmd"},
};
inline constexpr graph_word<ready_when> ready_when_words[] = {
    {ready_when::started, "started"},
    {ready_when::told, "told"},
};
inline constexpr graph_word<restart_when> restart_when_words[] = {
    {restart_when::never, "never"},
    {restart_when::on_failure, "failure"},
    {restart_when::always, "always"},
};

constexpr std::span<const graph_word<edge_kind>> words_of(edge_kind) {
  return edge_kind_words;
}
constexpr std::span<const graph_word<edge_shape>> words_of(edge_shape) {
  return edge_shape_words;
}
constexpr std::span<const graph_word<edge_loss>> words_of(edge_loss) {
  return edge_loss_words;
}
constexpr std::span<const graph_word<place_rule>> words_of(place_rule) {
  return place_rule_words;
}
constexpr std::span<const graph_word<place_level>> words_of(place_level) {
  return place_level_words;
}
constexpr std::span<const graph_word<role_kind>> words_of(role_kind) {
  return role_kind_words;
}
constexpr std::span<const graph_word<ready_when>> words_of(ready_when) {
  return ready_when_words;
}
constexpr std::span<const graph_word<restart_when>> words_of(restart_when) {
  return restart_when_words;
}

/// An enumeration that files name by words.
template <class T>
concept graph_enum = requires(T value) {
  words_of(value);
};

/// Returns the word of that enumerator; "?" if it is none.
template <graph_enum Enum>
constexpr std::string_view word_of(Enum value) noexcept {
  for (const graph_word<Enum>& each : words_of(value))
    if (each.value == value) return each.text;
  return "?";
}

/// Returns the enumerator of that word; nothing if there is none.
template <graph_enum Enum>
constexpr std::optional<Enum> named(std::string_view word) noexcept {
  for (const graph_word<Enum>& each : words_of(Enum()))
    if (each.text == word) return each.value;
  return std::nullopt;
}

/// Returns all words of an enumeration.
template <graph_enum Enum>
std::vector<std::string_view> all_words() {
  std::vector<std::string_view> all;
  for (const graph_word<Enum>& each : words_of(Enum())) all.push_back(each.text);
  return all;
}

}  // namespace manyworlds::inline v0::detail
