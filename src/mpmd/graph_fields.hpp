// Graph fields: what stands in the file of a graph, by name. The reader and the writer
// both walk these lists, so that neither has a field which the other has not.
#pragma once

#include <cstdint>
#include <string_view>

#include "manyworlds/mpmd/job_graph.hpp"

namespace manyworlds::inline v0::detail {

inline constexpr std::uint32_t most_instances = 65'536;
inline constexpr std::uint32_t most_cpus = 65'536;
inline constexpr std::uint32_t most_gpus = 4'096;
inline constexpr std::uint32_t most_tries = 4'096;
/// The absence without a value.
inline constexpr std::string_view held = "hold";

/// Walks the fields of a role. `Role` is graph_role, constant for a writer.
template <class Fields, class Role>
void walk_role(Fields& in, Role& role) {
  in.field("run", role.command);
  in.field("folder", role.folder);
  in.field("env", role.variables);
  in.count("count", role.counts);
  in.number("per_group", role.per_group, 1, most_instances);
  in.table("needs", [&role](auto& needs) {
    needs.number("cpus", role.needs.cpus, 0, most_cpus);
    needs.size("memory", role.needs.memory);
    needs.number("gpus", role.needs.gpus, 0, most_gpus);
    needs.field("labels", role.needs.labels);
  });
  in.table("restart", [&role](auto& restart) {
    restart.word("when", role.restarts);
    restart.number("tries", role.budget.tries, 0, most_tries);
    restart.time("per", role.budget.per);
  });
  in.field("after", role.after_roles);
  in.field("driver", role.is_driver);
  in.word("kind", role.kind);
  in.field("controller", role.controller_role);
  in.word("ready", role.ready);
  in.time("ready_within", role.ready_within);
  in.time("drain", role.drain_for);
  in.time("grace", role.grace);
  in.time("hang_after", role.hang_after);
}

/// Walks the fields of an edge.
template <class Fields, class Edge>
void walk_edge(Fields& in, Edge& edge) {
  in.field("from", edge.from);
  in.field("to", edge.to);
  in.word("kind", edge.kind);
  in.word("shape", edge.shape);
  in.word("on_loss", edge.on_loss);
}

/// Walks the fields of a rule of placement.
template <class Fields, class Place>
void walk_place(Fields& in, Place& place) {
  in.field("roles", place.roles);
  in.word("rule", place.rule);
  in.word("level", place.level);
}

/// Walks the fields of a count that is a table.
template <class Fields, class Count>
void walk_count(Fields& in, Count& count) {
  in.number("min", count.min, 0, most_instances);
  in.number("start", count.start, 0, most_instances);
  in.number("max", count.max, 0, most_instances);
}

/// Walks the fields of a budget.
template <class Fields, class Budget>
void walk_budget(Fields& in, Budget& budget) {
  in.number("tries", budget.tries, 0, most_tries);
  in.time("per", budget.per);
}

}  // namespace manyworlds::inline v0::detail
