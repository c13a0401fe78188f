#include "mpmd/table_reader.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "mpmd/graph_fields.hpp"
#include "mpmd/graph_units.hpp"
#include "mpmd/spoken_text.hpp"

namespace manyworlds::inline v0::detail {

namespace {

constexpr std::string_view a_time = "a time such as \"500ms\", \"90s\" or \"1h30m\"";
constexpr std::string_view a_size =
    "a size such as \"512MiB\" or \"2GiB\", or a number of bytes";

}  // namespace

table_reader::table_reader(graph_notes& notes, const graph_value& table, std::string path,
                           std::string name)
    : notes_(notes), table_(table), path_(std::move(path)), name_(std::move(name)) {
  if (!path_.empty()) notes_.positions.note(path_, table.where);
  if (table_.is(graph_value_kind::table)) return;
  // The name of a table within ends with the dot that its fields need.
  std::string_view spoken_name = name_;
  while (spoken_name.ends_with('.') || spoken_name.ends_with(' ') ||
         spoken_name.ends_with(':'))
    spoken_name.remove_suffix(1);
  notes_.object(path_, fmt::format("{} must be a table, is {}",
                                   spoken_name.empty() ? "the whole" : spoken_name,
                                   spoken(table_)));
}

std::string table_reader::path(std::string_view name) const {
  return path_to(path_, name);
}

void table_reader::object(std::string_view name, const std::string& what) {
  notes_.object(path(name), fmt::format("{}{} {}", name_, name, what));
}

void table_reader::refuse(std::string_view name, std::string_view must_be,
                          const graph_value& is) {
  object(name, fmt::format("must be {}, is {}", must_be, spoken(is)));
}

void table_reader::refuse_word(std::string_view name, const graph_value& is,
                               const std::vector<std::string_view>& words) {
  std::string what = fmt::format("must be {}, is {}", one_of(words), spoken(is));
  if (is.is(graph_value_kind::text)) what += did_you_mean(is.text, words);
  object(name, what);
}

const graph_value* table_reader::take(std::string_view name) {
  asked_.push_back(name);
  const graph_value* const found = table_.find(name);
  if (found != nullptr) notes_.positions.note(path(name), found->where);
  return found;
}

void table_reader::must_have(std::string_view name) {
  if (table_.is(graph_value_kind::table) && table_.find(name) == nullptr)
    object(name, "is missing");
}

void table_reader::field(std::string_view name, std::string& out) {
  const graph_value* const is = take(name);
  if (is == nullptr) return;
  if (!is->is(graph_value_kind::text)) return refuse(name, "a text", *is);
  out = is->text;
}

void table_reader::field(std::string_view name, std::vector<std::string>& out) {
  const graph_value* const is = take(name);
  if (is == nullptr) return;
  if (!is->is(graph_value_kind::list)) return refuse(name, "a list of texts", *is);
  out.clear();
  for (std::size_t i = 0; i < is->items.size(); ++i) {
    const graph_value& item = is->items[i];
    const std::string at = path_to(path(name), i);
    notes_.positions.note(at, item.where);
    // One that is none leaves its place, so that the others keep their numbers.
    out.push_back(item.text);
    if (item.is(graph_value_kind::text)) continue;
    out.back().clear();
    notes_.object(
        at, fmt::format("{}{}[{}] must be a text, is {}", name_, name, i, spoken(item)));
  }
}

void table_reader::field(std::string_view name, std::map<std::string, std::string>& out) {
  const graph_value* const is = take(name);
  if (is == nullptr) return;
  if (!is->is(graph_value_kind::table)) return refuse(name, "a table of texts", *is);
  out.clear();
  for (const graph_field& each : is->fields) {
    const std::string at = path_to(path(name), each.name);
    notes_.positions.note(at, each.where);
    out.insert_or_assign(each.name, each.value.text);
    if (each.value.is(graph_value_kind::text)) continue;
    notes_.object(at, fmt::format("{}{}: {} must be a text, is {}", name_, name,
                                  in_quotes(each.name), spoken(each.value)));
  }
}

void table_reader::field(std::string_view name, bool& out) {
  const graph_value* const is = take(name);
  if (is == nullptr) return;
  if (!is->is(graph_value_kind::boolean)) return refuse(name, "true or false", *is);
  out = is->truth;
}

void table_reader::number(std::string_view name, std::uint32_t& out, std::uint32_t least,
                          std::uint32_t most) {
  const graph_value* const is = take(name);
  if (is == nullptr) return;
  const bool is_in_range =
      is->is(graph_value_kind::integer) && is->number >= least && is->number <= most;
  if (!is_in_range) {
    return refuse(name, fmt::format("a whole number from {} to {}", least, most), *is);
  }
  out = static_cast<std::uint32_t>(is->number);
}

void table_reader::time(std::string_view name, duration& out) {
  const graph_value* const is = take(name);
  if (is == nullptr) return;
  std::optional<duration> read;
  if (is->is(graph_value_kind::text)) read = parse_duration(is->text);
  if (!read) return refuse(name, a_time, *is);
  out = *read;
}

void table_reader::time_or(std::string_view name, std::string_view word,
                           std::optional<duration>& out) {
  const graph_value* const is = take(name);
  if (is == nullptr) return;
  const bool is_text = is->is(graph_value_kind::text);
  std::optional<duration> read;
  if (is_text) read = parse_duration(is->text);
  const bool is_word = is_text && is->text == word;
  if (!read && !is_word)
    return refuse(name, fmt::format("\"{}\", or {}", word, a_time), *is);
  out = read;
}

void table_reader::size(std::string_view name, std::uint64_t& out) {
  const graph_value* const is = take(name);
  if (is == nullptr) return;
  std::optional<std::uint64_t> read;
  if (is->is(graph_value_kind::text)) read = parse_size(is->text);
  if (is->is(graph_value_kind::integer) && is->number >= 0)
    read = static_cast<std::uint64_t>(is->number);
  if (!read) return refuse(name, a_size, *is);
  out = *read;
}

void table_reader::count(std::string_view name, role_count& out) {
  const graph_value* const is = take(name);
  if (is == nullptr) return;
  if (is->is(graph_value_kind::integer)) {
    if (is->number < 0 || is->number > most_instances) {
      return refuse(name, fmt::format("a whole number from 0 to {}", most_instances),
                    *is);
    }
    const auto all = static_cast<std::uint32_t>(is->number);
    out = {all, all, all};
    return;
  }
  if (!is->is(graph_value_kind::table))
    return refuse(name, "a number, or a table of min, start and max", *is);
  const std::size_t wrong_before = notes_.wrong.size();
  role_count read;
  table_reader inner(notes_, *is, path(name), name_ + std::string(name) + '.');
  inner.must_have("start");
  // Either has the value of `start` where it is not given; that it can be used is seen
  // when it is read.
  const graph_value* const start = is->find("start");
  if (start != nullptr && start->is(graph_value_kind::integer) && start->number >= 0 &&
      start->number <= most_instances)
    read.min = read.max = static_cast<std::uint32_t>(start->number);
  walk_count(inner, read);
  inner.finish();
  if (notes_.wrong.size() == wrong_before) {
    out = read;
  } else {
    notes_.unsure.insert(path(name));
  }
}

void table_reader::finish() {
  if (!table_.is(graph_value_kind::table)) return;
  const bool is_within = name_.ends_with('.');
  const std::string speaker =
      is_within ? name_.substr(0, name_.size() - 1) + ": " : name_;
  for (const graph_field& each : table_.fields) {
    if (std::find(asked_.begin(), asked_.end(), each.name) != asked_.end()) continue;
    const std::string at = path(each.name);
    notes_.positions.note(at, each.where);
    // A search compares with all names.
    const bool searches = ++notes_.unknown_fields <= most_nearest_names;
    const std::string_view near =
        searches ? nearest_name(each.name, asked_) : std::string_view();
    // What is missed under its right name was meant to be this.
    if (!near.empty() && table_.find(near) == nullptr) notes_.unsure.insert(path(near));
    notes_.object(at, fmt::format("{}no field {}{}", speaker, in_quotes(each.name),
                                  near.empty() ? std::string()
                                               : fmt::format("; did you mean {}?",
                                                             in_quotes(near))));
  }
}

}  // namespace manyworlds::inline v0::detail
