#include "mpmd/graph_reader.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <system_error>
#include <utility>

#include "mpmd/graph_check.hpp"
#include "mpmd/graph_fields.hpp"
#include "mpmd/spoken_text.hpp"
#include "mpmd/table_reader.hpp"

namespace manyworlds::inline v0 {

namespace detail {

namespace {

/// Of a text of garbage more objections are of no help.
constexpr std::size_t most_objections = 1000;

}  // namespace

void graph_notes::object(const std::string& field, const std::string& what) {
  unsure.insert(field);
  wrong.push_back(positions.object(field, what));
}

graph_reader::graph_reader(std::string source) {
  notes_.positions = graph_positions(std::move(source));
}

job_graph graph_reader::read(graph_tree tree) {
  notes_.wrong = std::move(tree.wrong);
  if (!tree.is_read) refuse();
  job_graph made;
  read_root(tree.root, made);
  made.positions_ = notes_.positions;
  for (graph_objection& each : check_graph(made, made.positions_, notes_.unsure))
    notes_.wrong.push_back(std::move(each));
  if (!notes_.wrong.empty()) refuse();
  return made;
}

void graph_reader::refuse() {
  std::vector<graph_objection>& all = notes_.wrong;
  std::stable_sort(all.begin(), all.end(),
                   [](const graph_objection& a, const graph_objection& b) {
                     return std::pair(a.line, a.column) < std::pair(b.line, b.column);
                   });
  if (all.size() > most_objections) {
    const std::size_t more = all.size() - most_objections;
    all.resize(most_objections);
    graph_objection last = all.back();
    last.field.clear();
    last.what = fmt::format("and {} more behind this", more);
    all.push_back(std::move(last));
  }
  throw graph_error(std::move(all));
}

void graph_reader::read_root(const graph_value& root, job_graph& into) {
  notes_.positions.note({}, {1, 1});
  table_reader in(notes_, root, {}, {});
  in.field("name", into.name_);
  in.table("restart", [&](auto& restart) { walk_budget(restart, into.whole_job); });
  in.time_or("absence", held, into.absence);
  if (const graph_value* const roles = in.take("role")) read_roles(*roles, into);
  if (const graph_value* const edges = in.take("edge")) read_edges(*edges, into);
  if (const graph_value* const places = in.take("place")) read_places(*places, into);
  in.finish();
}

void graph_reader::read_roles(const graph_value& from, job_graph& into) {
  if (!from.is(graph_value_kind::table)) {
    return notes_.object(
        "role", "role must be a table of roles, as [role.decode], is " + spoken(from));
  }
  for (const graph_field& each : from.fields) {
    graph_role& role = into.roles_.emplace_back();
    role.name = each.name;
    table_reader in(notes_, each.value, path_to("role", each.name),
                    fmt::format("role {}: ", in_quotes(each.name)));
    walk_role(in, role);
    in.finish();
  }
}

void graph_reader::read_edges(const graph_value& from, job_graph& into) {
  if (!from.is(graph_value_kind::table)) {
    return notes_.object(
        "edge", "edge must be a table of edges, as [edge.kv], is " + spoken(from));
  }
  for (const graph_field& each : from.fields) {
    graph_edge& edge = into.edges_.emplace_back();
    edge.name = each.name;
    table_reader in(notes_, each.value, path_to("edge", each.name),
                    fmt::format("edge {}: ", in_quotes(each.name)));
    walk_edge(in, edge);
    in.finish();
    const bool is_odd = edge.kind == edge_kind::calls && each.value.find("shape");
    if (!is_odd || notes_.unsure.contains(in.path("shape"))) continue;
    in.object("shape", "is for edges of kind bulk, and this is of calls");
  }
}

void graph_reader::read_places(const graph_value& from, job_graph& into) {
  if (!from.is(graph_value_kind::list)) {
    return notes_.object(
        "place", "place must be a list of rules, each [[place]], is " + spoken(from));
  }
  for (std::size_t i = 0; i < from.items.size(); ++i) {
    graph_place& place = into.places_.emplace_back();
    const std::string path = path_to("place", i);
    table_reader in(notes_, from.items[i], path, path + ": ");
    in.must_have("rule");
    walk_place(in, place);
    in.finish();
  }
}

}  // namespace detail

namespace {

void refuse_long_text(std::string_view text, const std::string& source) {
  if (text.size() <= detail::longest_graph_text) return;
  throw graph_error({{source,
                      0,
                      0,
                      {},
                      fmt::format("has {} bytes, and a graph has at most {}", text.size(),
                                  detail::longest_graph_text)}});
}

/// An open file, which is closed in the end.
struct open_file {
  explicit open_file(const std::string& path)
      : fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC)) {}
  open_file(const open_file&) = delete;
  open_file& operator=(const open_file&) = delete;
  ~open_file() {
    if (fd >= 0) ::close(fd);
  }
  int fd;
};

std::string read_file(const std::string& path) {
  const auto refuse = [&path](int error) {
    throw std::system_error(error, std::generic_category(), path);
  };
  const open_file file(path);
  if (file.fd < 0) refuse(errno);
  std::string text;
  for (char part[65536];;) {
    const ssize_t n = ::read(file.fd, part, sizeof part);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) refuse(errno);
    if (n == 0) return text;
    text.append(part, static_cast<std::size_t>(n));
    if (text.size() > detail::longest_graph_text) refuse(EFBIG);
  }
}

}  // namespace

job_graph job_graph::from_file(const std::string& path) {
  const std::string text = read_file(path);
  return path.ends_with(".json") ? from_json(text, path) : from_toml(text, path);
}

job_graph job_graph::from_toml(std::string_view text, std::string source) {
  refuse_long_text(text, source);
  return detail::graph_reader(source).read(detail::read_toml_tree(text, source));
}

job_graph job_graph::from_json(std::string_view text, std::string source) {
  refuse_long_text(text, source);
  return detail::graph_reader(source).read(detail::read_json_tree(text, source));
}

}  // namespace manyworlds::inline v0
