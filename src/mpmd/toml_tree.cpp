#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <utility>

#include "mpmd/graph_tree.hpp"
#include "mpmd/spoken_text.hpp"

namespace manyworlds::inline v0::detail {

namespace {

/// Thrown where toml++ asserts. Version 3.3 does for some texts, as "[{", and may assume
/// in builds without assertions that there are none.
struct toml_assertion {};

[[noreturn]] void throw_assertion() { throw toml_assertion(); }

}  // namespace

}  // namespace manyworlds::inline v0::detail

// Its errors come as values, since they are no types of ours. Its assertions throw, under
// another name than toml++ has in a program that uses it too.
#undef NDEBUG
#define TOML_EXCEPTIONS 0
#define TOML_ENABLE_FORMATTERS 0
#define TOML_ASSERT(holds) ((holds) ? void() : ::manyworlds::detail::throw_assertion())
#define toml manyworlds_toml
#include <toml++/toml.h>
#undef toml

namespace manyworlds::inline v0::detail {

namespace {

namespace toml = ::manyworlds_toml;

/// Dotted names nest as brackets do, and toml++ bounds only those.
constexpr std::size_t most_dots = 8;

/// Finds where a text nests deeper than it may, without understanding more of it than
/// texts, comments and brackets.
class toml_depth {
 public:
  explicit toml_depth(std::string_view text) : text_(text) {}

  /// Returns the offset of what is too deep; the size of the text if nothing is.
  std::size_t too_deep() {
    while (at_ < text_.size()) {
      const char c = text_[at_];
      if (c == '"' || c == '\'') {
        skip_text(c);
        continue;
      }
      if (c == '#') {
        at_ = std::min(text_.find('\n', at_), text_.size());
        continue;
      }
      if (counts(c)) return at_;
      ++at_;
    }
    return text_.size();
  }

 private:
  /// Returns whether that character is one too many.
  bool counts(char c) {
    if (c == '.') return ++dots_ > most_dots;
    if (c == '[' || c == '{') {
      dots_ = 0;
      return ++brackets_ > deepest_graph_text;
    }
    if (c == ']' || c == '}') {
      dots_ = 0;
      if (brackets_ > 0) --brackets_;
    }
    if (c == '=' || c == ',' || c == '\n') dots_ = 0;
    return false;
  }

  void skip_text(char quote) {
    const std::string thrice(3, quote);
    const bool is_long = text_.substr(at_).starts_with(thrice);
    at_ += is_long ? 3 : 1;
    while (at_ < text_.size()) {
      if (quote == '"' && text_[at_] == '\\') {
        at_ += 2;
      } else if (is_long ? text_.substr(at_).starts_with(thrice) : text_[at_] == quote) {
        at_ += is_long ? 3 : 1;
        // The text may end with one or two quotes of its own.
        while (is_long && at_ < text_.size() && text_[at_] == quote) ++at_;
        return;
      } else if (!is_long && text_[at_] == '\n') {
        return;
      } else {
        ++at_;
      }
    }
    at_ = std::min(at_, text_.size());
  }

  std::string_view text_;
  std::size_t at_ = 0;
  std::size_t dots_ = 0;
  std::size_t brackets_ = 0;
};

graph_position position_of(const toml::source_position& from) {
  return {static_cast<std::uint32_t>(from.line), static_cast<std::uint32_t>(from.column)};
}

class toml_walk {
 public:
  toml_walk(const std::string& source, std::vector<graph_objection>& wrong)
      : source_(source), wrong_(wrong) {}

  graph_value value(const toml::node& from) {
    graph_value made;
    made.where = position_of(from.source().begin);
    if (const auto* const table = from.as_table()) {
      made.kind = graph_value_kind::table;
      take_fields(*table, made);
    } else if (const auto* const list = from.as_array()) {
      made.kind = graph_value_kind::list;
      made.items.reserve(list->size());
      for (const toml::node& item : *list) made.items.push_back(value(item));
    } else {
      take_plain(from, made);
    }
    return made;
  }

 private:
  /// toml++ sorts tables by name; here a graph has the order of its text.
  void take_fields(const toml::table& from, graph_value& to) {
    for (const auto& [key, node] : from) {
      const graph_position where = position_of(key.source().begin);
      if (key.str().size() > longest_field_name) {
        wrong_.push_back(
            {source_,
             where.line,
             where.column,
             {},
             fmt::format("the name {} has {} bytes, and may have {}",
                         in_quotes(key.str()), key.str().size(), longest_field_name)});
        continue;
      }
      to.fields.push_back({std::string(key.str()), where, value(node)});
    }
    std::stable_sort(to.fields.begin(), to.fields.end(),
                     [](const graph_field& a, const graph_field& b) {
                       return std::pair(a.where.line, a.where.column) <
                              std::pair(b.where.line, b.where.column);
                     });
  }

  static void take_plain(const toml::node& from, graph_value& to) {
    if (const auto* const text = from.as_string()) {
      to.kind = graph_value_kind::text;
      to.text = text->get();
    } else if (const auto* const number = from.as_integer()) {
      to.kind = graph_value_kind::integer;
      to.number = number->get();
    } else if (const auto* const real = from.as_floating_point()) {
      to.kind = graph_value_kind::real;
      to.text = fmt::format("{}", real->get());
    } else if (const auto* const truth = from.as_boolean()) {
      to.kind = graph_value_kind::boolean;
      to.truth = truth->get();
    } else {
      to.kind = graph_value_kind::date;
    }
  }

  const std::string& source_;
  std::vector<graph_objection>& wrong_;
};

bool is_asserted(std::string_view text) {
  try {
    static_cast<void>(toml::parse(text));
    return false;
  } catch (const toml_assertion&) {
    return true;
  }
}

/// Returns where an assertion ends the reading of that text: behind the longest part
/// that is read to its end, or to another error.
std::size_t asserted_at(std::string_view text) {
  std::size_t read = 0;
  std::size_t asserted = text.size();
  while (asserted - read > 1) {
    const std::size_t middle = read + (asserted - read) / 2;
    (is_asserted(text.substr(0, middle)) ? asserted : read) = middle;
  }
  // A character may have several bytes.
  while (read > 0 && (static_cast<unsigned char>(text[read]) & 0xc0) == 0x80) --read;
  return read;
}

graph_tree take_parsed(toml::parse_result parsed, const std::string& source) {
  graph_tree made;
  if (!parsed) {
    const toml::parse_error& error = parsed.error();
    const graph_position where = position_of(error.source().begin);
    made.wrong.push_back({source,
                          where.line,
                          where.column,
                          {},
                          "no TOML: " + printable(error.description())});
    return made;
  }
  made.root = toml_walk(source, made.wrong).value(parsed.table());
  made.is_read = true;
  return made;
}

}  // namespace

graph_tree read_toml_tree(std::string_view text, const std::string& source) {
  graph_tree made;
  if (const std::size_t at = toml_depth(text).too_deep(); at < text.size()) {
    const graph_position where = position_at(text, at);
    made.wrong.push_back({source,
                          where.line,
                          where.column,
                          {},
                          fmt::format("nests deeper than {} brackets or {} dots",
                                      deepest_graph_text, most_dots)});
    return made;
  }
  try {
    return take_parsed(toml::parse(text), source);
  } catch (const toml_assertion&) {
    const std::size_t at = asserted_at(text);
    const graph_position where = position_at(text, at);
    std::size_t end = at + 1;
    while (end < text.size() && (static_cast<unsigned char>(text[end]) & 0xc0) == 0x80)
      ++end;
    made.wrong.push_back({source,
                          where.line,
                          where.column,
                          {},
                          fmt::format("no TOML: {} may not stand here",
                                      in_quotes(text.substr(at, end - at)))});
    return made;
  }
}

}  // namespace manyworlds::inline v0::detail
