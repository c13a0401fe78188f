#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <utility>

#include "mpmd/graph_tree.hpp"
#include "mpmd/spoken_text.hpp"

namespace manyworlds::inline v0::detail {

namespace {

/// Finds where the values of a JSON text begin, one after the other. nlohmann's parser
/// reads the text and says what each is, but not where it stood.
class json_cursor {
 public:
  explicit json_cursor(std::string_view text) : text_(text) {
    if (text_.starts_with(byte_order_mark)) at_ = byte_order_mark.size();
  }

  /// Returns the position of the next name or value, and passes it.
  graph_position next() {
    skip_to(std::min(text_.find_first_not_of(" \t\r\n,:]}", at_), text_.size()));
    const graph_position here = where_;
    if (at_ == text_.size()) return here;
    if (text_[at_] == '"') {
      skip_to(end_of_text());
    } else if (text_[at_] == '{' || text_[at_] == '[') {
      skip_to(at_ + 1);
    } else {
      skip_to(std::min(text_.find_first_of(" \t\r\n,:]}", at_), text_.size()));
    }
    return here;
  }

 private:
  [[nodiscard]] std::size_t end_of_text() const {
    std::size_t i = at_ + 1;
    while (i < text_.size() && text_[i] != '"') i += text_[i] == '\\' ? 2 : 1;
    return std::min(i + 1, text_.size());
  }

  void skip_to(std::size_t offset) {
    for (; at_ < offset; ++at_) {
      const auto c = static_cast<unsigned char>(text_[at_]);
      if (c == '\n') {
        ++where_.line;
        where_.column = 1;
      } else if ((c & 0xc0) != 0x80) {
        ++where_.column;
      }
    }
  }

  std::string_view text_;
  std::size_t at_ = 0;
  graph_position where_{1, 1};
};

/// Takes what nlohmann's parser says, by the names that it calls.
class json_builder {
 public:
  json_builder(std::string_view text, const std::string& source, graph_tree& made)
      : text_(text), cursor_(text), source_(source), made_(made) {}

  bool null() { return add(graph_value()); }
  bool boolean(bool truth) { return add(graph_value::of_truth(truth)); }
  bool number_integer(std::int64_t number) { return add(graph_value::of_number(number)); }
  bool number_unsigned(std::uint64_t number) {
    if (number > INT64_MAX) return number_float(0, std::to_string(number));
    return add(graph_value::of_number(static_cast<std::int64_t>(number)));
  }
  bool number_float(double, const std::string& text) {
    graph_value real = graph_value::empty(graph_value_kind::real);
    real.text = text;
    return add(std::move(real));
  }
  bool string(std::string& text) { return add(graph_value::of_text(std::move(text))); }
  bool binary(std::vector<std::uint8_t>&) { return false; }
  bool start_object(std::size_t) { return open(graph_value_kind::table); }
  bool start_array(std::size_t) { return open(graph_value_kind::list); }
  bool end_object() { return close(); }
  bool end_array() { return close(); }
  bool key(std::string& name) {
    level& in = open_.back();
    in.name_at = cursor_.next();
    const bool is_long = name.size() > longest_field_name;
    in.is_skipped = is_long || !in.names.insert(name).second;
    if (in.is_skipped) {
      const std::string what =
          is_long ? fmt::format("the name {} has {} bytes, and may have {}",
                                in_quotes(name), name.size(), longest_field_name)
                  : fmt::format("{} stands here for the second time", in_quotes(name));
      made_.wrong.push_back({source_, in.name_at.line, in.name_at.column, {}, what});
    }
    in.name = std::move(name);
    return true;
  }
  bool parse_error(std::size_t read, const std::string&,
                   const nlohmann::detail::exception& error) {
    const graph_position at = position_at(text_, read == 0 ? 0 : read - 1);
    // The place and the name of the exception stand before it.
    std::string_view what = error.what();
    if (const auto begin = what.find("parsing "); begin != what.npos)
      what.remove_prefix(begin);
    // It ends with what was read last, which may be long.
    refuse(at, "no JSON: while " + printable(what.substr(0, longest_field_name)));
    return false;
  }

 private:
  /// A list or table that is open.
  struct level {
    graph_value value;
    std::string name;
    graph_position name_at;
    bool is_skipped = false;
    std::set<std::string> names;
  };

  void refuse(graph_position at, std::string what) {
    made_.wrong.push_back({source_, at.line, at.column, {}, std::move(what)});
  }

  bool add(graph_value value) {
    value.where = cursor_.next();
    put(std::move(value));
    return true;
  }

  bool open(graph_value_kind kind) {
    graph_value value = graph_value::empty(kind);
    value.where = cursor_.next();
    if (open_.size() == deepest_graph_text) {
      refuse(value.where, fmt::format("nests deeper than {}", deepest_graph_text));
      return false;
    }
    open_.push_back({std::move(value), {}, {}, false, {}});
    return true;
  }

  bool close() {
    graph_value value = std::move(open_.back().value);
    open_.pop_back();
    put(std::move(value));
    return true;
  }

  void put(graph_value value) {
    if (open_.empty()) {
      made_.root = std::move(value);
      return;
    }
    level& in = open_.back();
    if (in.value.is(graph_value_kind::list)) {
      in.value.items.push_back(std::move(value));
    } else if (!in.is_skipped) {
      in.value.fields.push_back({std::move(in.name), in.name_at, std::move(value)});
    }
  }

  std::string_view text_;
  json_cursor cursor_;
  const std::string& source_;
  graph_tree& made_;
  std::vector<level> open_;
};

}  // namespace

graph_tree read_json_tree(std::string_view text, const std::string& source) {
  graph_tree made;
  json_builder builder(text, source, made);
  made.is_read = nlohmann::json::sax_parse(text.begin(), text.end(), &builder);
  if (!made.is_read) made.root = graph_value();
  return made;
}

}  // namespace manyworlds::inline v0::detail
