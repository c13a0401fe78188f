#include <fmt/format.h>

#include <set>
#include <string>

#include "manyworlds/inline_text.hpp"
#include "manyworlds/world/view.hpp"
#include "mpmd/graph_check.hpp"
#include "mpmd/spoken_text.hpp"

namespace manyworlds::inline v0::detail {

namespace {

constexpr std::size_t longest_world_name = 63;

/// Checks one edge.
class edge_check {
 public:
  edge_check(const job_graph& graph, const graph_edge& edge, check_notes& notes)
      : graph_(graph),
        edge_(edge),
        notes_(notes),
        path_(path_to("edge", edge.name)),
        speaker_(fmt::format("edge {}: ", in_quotes(edge.name))) {}

  void check() {
    check_name(notes_, path_, "edge", edge_.name);
    const graph_role* const from = end("from", edge_.from);
    const graph_role* const to = end("to", edge_.to);
    // Calls have a world for each pair, too.
    if (edge_.kind == edge_kind::calls && edge_.shape != edge_shape::pairs)
      return object("shape", "an edge of calls has no shape");
    if (from == nullptr || to == nullptr || notes_.is_unsure(path_to(path_, "shape")) ||
        notes_.is_unsure(path_to(path_, "kind")))
      return;
    if (!notes_.is_count_sure(*from) || !notes_.is_count_sure(*to)) return;
    if (edge_.shape == edge_shape::aligned) check_aligned(*from, *to);
    if (edge_.shape == edge_shape::pairs) check_pairs(*from, *to);
    if (edge_.shape == edge_shape::group) check_group(*from, *to);
    check_world_names(*from, *to);
  }

 private:
  void object(std::string_view field, std::string_view what) {
    notes_.object(path_to(path_, field), fmt::format("{}{}", speaker_, what));
  }

  const graph_role* end(const char* field, const std::string& name) {
    if (name.empty()) {
      object(field, fmt::format("{} is missing", field));
      return nullptr;
    }
    return notes_.need_role(path_to(path_, field), speaker_, name);
  }

  void check_aligned(const graph_role& from, const graph_role& to) {
    if (&from == &to)
      return object("shape", "aligned would pair each instance with itself");
    if (from.counts.max == to.counts.max) return;
    object("shape", fmt::format("aligned needs roles of equal counts, and {} has up to "
                                "{}, {} up to {}",
                                in_quotes(from.name), from.counts.max, in_quotes(to.name),
                                to.counts.max));
  }

  void check_pairs(const graph_role& from, const graph_role& to) {
    const std::uint64_t n = from.counts.max;
    if (edge_.kind == edge_kind::bulk && &from == &to && n == 1)
      return object("to", fmt::format("role {} has one instance, which has no pair",
                                      in_quotes(to.name)));
    const std::uint64_t worlds =
        &from == &to ? (n == 0 ? 0 : n * (n - 1) / 2) : n * to.counts.max;
    if (worlds > most_worlds) {
      object("shape", fmt::format("pairs of {} and {} instances are {} worlds, and an "
                                  "edge has at most {}; a group is one",
                                  n, to.counts.max, worlds, most_worlds));
    }
  }

  void check_group(const graph_role& from, const graph_role& to) {
    const std::uint64_t all =
        std::uint64_t{from.counts.max} + (&from == &to ? 0 : to.counts.max);
    if (all > static_cast<std::uint64_t>(world_view::largest_size)) {
      object("shape",
             fmt::format("the group would have up to {} members, and a world has at "
                         "most {}",
                         all, world_view::largest_size));
    }
  }

  void check_world_names(const graph_role& from, const graph_role& to) {
    std::string name = fmt::format("{}/{}", graph_.name(), edge_.name);
    if (edge_.shape != edge_shape::group) {
      if (from.counts.max == 0 || to.counts.max == 0) return;
      name += fmt::format("/{}.{}-{}.{}", from.name, from.counts.max - 1, to.name,
                          to.counts.max - 1);
    }
    if (name.size() <= longest_world_name) return;
    // Names that are too long by themselves have been objected to.
    for (const std::string* each : {&graph_.name(), &edge_.name, &from.name, &to.name})
      if (each->size() > longest_graph_name) return;
    notes_.object(
        path_, fmt::format("{}its world {} would have a name of {} bytes, and "
                           "may have {}: shorten the names of the job, the "
                           "edge or the roles",
                           speaker_, in_quotes(name), name.size(), longest_world_name));
  }

  const job_graph& graph_;
  const graph_edge& edge_;
  check_notes& notes_;
  std::string path_;
  std::string speaker_;
};

}  // namespace

void check_edges(const job_graph& graph, check_notes& notes) {
  std::set<std::string_view> seen;
  for (const graph_edge& each : graph.edges()) {
    edge_check(graph, each, notes).check();
    if (!seen.insert(each.name).second && !each.name.empty()) {
      notes.object(
          path_to("edge", each.name),
          fmt::format("edge {}: another edge has that name", in_quotes(each.name)));
    }
  }
}

}  // namespace manyworlds::inline v0::detail
