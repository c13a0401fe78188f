// Spoken text: names and values of strangers as they stand in an error's text.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "mpmd/graph_tree.hpp"

namespace manyworlds::inline v0::detail {

/// Returns whether it is UTF-8 without a zero byte: what both files and processes take.
[[nodiscard]] bool is_plain_text(std::string_view text);
/// Returns it with '?' in place of bytes that are no printable ASCII and not part of a
/// longer character, so that a terminal shows it and does nothing else.
[[nodiscard]] std::string printable(std::string_view text);
/// Returns it between quotes, printable, and cut where it is long.
[[nodiscard]] std::string in_quotes(std::string_view text);
/// Returns a value as it is named in a complaint: `"blk"`, `3`, `a list`.
[[nodiscard]] std::string spoken(const graph_value& value);
/// Returns `a, b or c`.
[[nodiscard]] std::string one_of(const std::vector<std::string_view>& words);

/// Returns `; did you mean "decode"?`, or nothing if no candidate is near.
[[nodiscard]] std::string did_you_mean(std::string_view wanted,
                                       const std::vector<std::string_view>& candidates);
/// Returns the candidate that is meant, as it seems; an empty one if none is near. Names
/// differ by case too, so one that differs by nothing else is the nearest.
[[nodiscard]] std::string_view nearest_name(
    std::string_view wanted, const std::vector<std::string_view>& candidates);
/// A text with more wrong names than these is garbage, and each search would compare with
/// all candidates: the nearest of the others are not looked for.
inline constexpr std::size_t most_nearest_names = 100;

/// Returns the name as a part of a field's path: quoted where it is more than letters,
/// digits, '-' and '_'.
[[nodiscard]] std::string path_part(std::string_view name);
/// Returns `path.name`.
[[nodiscard]] std::string path_to(std::string_view path, std::string_view name);
/// Returns `path[index]`.
[[nodiscard]] std::string path_to(std::string_view path, std::size_t index);
/// Returns the path of what that one is a field or an item of; empty at the top.
[[nodiscard]] std::string_view parent_path(std::string_view path);

/// What some editors put before a text. It is no character of its first line.
inline constexpr std::string_view byte_order_mark = "\xef\xbb\xbf";
/// Returns line and column of the character at `offset`.
[[nodiscard]] graph_position position_at(std::string_view text, std::size_t offset);

}  // namespace manyworlds::inline v0::detail
