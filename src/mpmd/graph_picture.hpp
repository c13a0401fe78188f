// Graph picture: a graph as text for Graphviz or Mermaid, with what each instance does.
#pragma once

#include <functional>
#include <map>
#include <string>

#include "manyworlds/mpmd/job_graph.hpp"

namespace manyworlds::inline v0::detail {

/// The state of each instance, by its name: "decode.1" to "running".
using instance_states = std::map<std::string, std::string, std::less<>>;

/// Returns the picture of a graph: roles are boxes, edges lines; `after` is dotted, and
/// edges of `restart_together` are thick. With states each role shows its instances.
[[nodiscard]] std::string dot_picture(const job_graph& graph,
                                      const instance_states& states = {});
[[nodiscard]] std::string mermaid_picture(const job_graph& graph,
                                          const instance_states& states = {});

}  // namespace manyworlds::inline v0::detail
