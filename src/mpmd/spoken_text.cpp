#include "mpmd/spoken_text.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <numeric>

namespace manyworlds::inline v0::detail {

namespace {

constexpr std::size_t longest_quoted = 64;
/// Distances of longer names are not measured: their cost grows by the square.
constexpr std::size_t longest_compared = 64;

bool is_bare(std::string_view name) {
  return !name.empty() && std::all_of(name.begin(), name.end(), [](char c) {
    return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '-' || c == '_';
  });
}

std::string lower(std::string_view text) {
  std::string made(text);
  for (char& c : made) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return made;
}

/// Counts what is put in, left out, replaced, or swapped with its neighbour.
std::size_t edit_distance(std::string_view a, std::string_view b) {
  using row = std::array<std::size_t, longest_compared + 1>;
  row before_last{};
  row last{};
  row now{};
  std::iota(last.begin(), last.end(), std::size_t{0});
  for (std::size_t i = 1; i <= a.size(); ++i) {
    now[0] = i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const std::size_t replaced = last[j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1);
      now[j] = std::min({replaced, last[j] + 1, now[j - 1] + 1});
      const bool is_swap = i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1];
      if (is_swap) now[j] = std::min(now[j], before_last[j - 2] + 1);
    }
    before_last = last;
    last = now;
  }
  return last[b.size()];
}

/// Returns how many bytes from there on are one character of UTF-8; 0 if they are none.
std::size_t character_at(std::string_view text, std::size_t at) {
  const auto first = static_cast<unsigned char>(text[at]);
  if (first < 0x80) return 1;
  const std::size_t bytes = first >= 0xf0 ? 4 : first >= 0xe0 ? 3 : first >= 0xc2 ? 2 : 0;
  if (bytes == 0 || first > 0xf4 || at + bytes > text.size()) return 0;
  for (std::size_t i = 1; i < bytes; ++i)
    if ((static_cast<unsigned char>(text[at + i]) & 0xc0) != 0x80) return 0;
  // Longer than they need to be, halves of surrogates, and beyond the last character.
  const auto second = static_cast<unsigned char>(text[at + 1]);
  const bool is_wrong =
      (first == 0xe0 && second < 0xa0) || (first == 0xed && second >= 0xa0) ||
      (first == 0xf0 && second < 0x90) || (first == 0xf4 && second >= 0x90);
  return is_wrong ? 0 : bytes;
}

/// The controls of two bytes, U+0080 to U+009F, are obeyed by terminals too.
bool is_control(std::string_view character) {
  const auto first = static_cast<unsigned char>(character[0]);
  if (character.size() == 1) return first < 0x20 || first == 0x7f;
  return first == 0xc2 && static_cast<unsigned char>(character[1]) < 0xa0;
}

}  // namespace

bool is_plain_text(std::string_view text) {
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t bytes = character_at(text, at);
    if (bytes == 0 || text[at] == '\0') return false;
    at += bytes;
  }
  return true;
}

std::string printable(std::string_view text) {
  std::string made;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t bytes = character_at(text, at);
    const bool is_shown = bytes > 0 && !is_control(text.substr(at, bytes));
    if (is_shown) {
      made += text.substr(at, bytes);
    } else {
      made += '?';
    }
    at += std::max<std::size_t>(bytes, 1);
  }
  return made;
}

std::string in_quotes(std::string_view text) {
  if (text.size() <= longest_quoted) return '"' + printable(text) + '"';
  std::size_t cut = longest_quoted;
  while (cut > 0 && (static_cast<unsigned char>(text[cut]) & 0xc0) == 0x80) --cut;
  return '"' + printable(text.substr(0, cut)) + "...\"";
}

std::string spoken(const graph_value& value) {
  switch (value.kind) {
    case graph_value_kind::nothing:
      return "nothing";
    case graph_value_kind::boolean:
      return value.truth ? "true" : "false";
    case graph_value_kind::integer:
      return std::to_string(value.number);
    case graph_value_kind::real:
      return printable(std::string_view(value.text).substr(0, longest_quoted));
    case graph_value_kind::text:
      return in_quotes(value.text);
    case graph_value_kind::list:
      return "a list";
    case graph_value_kind::table:
      return "a table";
    case graph_value_kind::date:
      return "a date or a time";
  }
  return "?";
}

std::string one_of(const std::vector<std::string_view>& words) {
  std::string made;
  for (std::size_t i = 0; i < words.size(); ++i) {
    if (i > 0) made += i + 1 == words.size() ? " or " : ", ";
    made += words[i];
  }
  return made;
}

std::string_view nearest_name(std::string_view wanted,
                              const std::vector<std::string_view>& candidates) {
  if (wanted.empty() || wanted.size() > longest_compared) return {};
  const std::string low = lower(wanted);
  std::string_view best;
  // A third of it may be wrong, and of a short name one character.
  std::size_t least = std::max<std::size_t>(1, wanted.size() / 3) + 1;
  for (const std::string_view candidate : candidates) {
    if (candidate.empty() || candidate.size() > longest_compared) continue;
    const std::size_t longer = std::max(candidate.size(), wanted.size());
    if (longer - std::min(candidate.size(), wanted.size()) >= least) continue;
    const std::size_t distance = edit_distance(low, lower(candidate));
    // With every character replaced it is another name.
    if (distance >= least || distance >= candidate.size()) continue;
    least = distance;
    best = candidate;
  }
  return best;
}

std::string did_you_mean(std::string_view wanted,
                         const std::vector<std::string_view>& candidates) {
  const std::string_view near = nearest_name(wanted, candidates);
  return near.empty() ? std::string()
                      : fmt::format("; did you mean {}?", in_quotes(near));
}

std::string path_part(std::string_view name) {
  if (is_bare(name)) return std::string(name);
  std::string made = "\"";
  for (const char c : name) {
    if (c == '"' || c == '\\') made += '\\';
    made += c;
  }
  return made + '"';
}

std::string path_to(std::string_view path, std::string_view name) {
  return path.empty() ? path_part(name) : fmt::format("{}.{}", path, path_part(name));
}

std::string path_to(std::string_view path, std::size_t index) {
  return fmt::format("{}[{}]", path, index);
}

std::string_view parent_path(std::string_view path) {
  if (path.empty()) return {};
  if (path.back() == ']') return path.substr(0, path.rfind('['));
  if (path.back() == '"') {
    // From the front, since only there it is known which quotes are escaped.
    std::size_t opened = 0;
    bool is_inside = false;
    for (std::size_t i = 0; i < path.size(); ++i) {
      if (is_inside && path[i] == '\\') {
        ++i;
      } else if (path[i] == '"') {
        is_inside = !is_inside;
        if (is_inside) opened = i;
      }
    }
    return opened == 0 ? std::string_view() : path.substr(0, opened - 1);
  }
  const std::size_t dot = path.rfind('.');
  return dot == std::string_view::npos ? std::string_view() : path.substr(0, dot);
}

graph_position position_at(std::string_view text, std::size_t offset) {
  graph_position at{1, 1};
  std::string_view before = text.substr(0, std::min(offset, text.size()));
  if (before.starts_with(byte_order_mark)) before.remove_prefix(byte_order_mark.size());
  for (const char c : before) {
    if (c == '\n') {
      ++at.line;
      at.column = 1;
    } else if ((static_cast<unsigned char>(c) & 0xc0) != 0x80) {
      ++at.column;
    }
  }
  return at;
}

}  // namespace manyworlds::inline v0::detail
