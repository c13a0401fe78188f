#include "mpmd/graph_tree.hpp"

#include <utility>

namespace manyworlds::inline v0::detail {

graph_value graph_value::of_text(std::string text) {
  graph_value made = empty(graph_value_kind::text);
  made.text = std::move(text);
  return made;
}

graph_value graph_value::of_number(std::int64_t number) {
  graph_value made = empty(graph_value_kind::integer);
  made.number = number;
  return made;
}

graph_value graph_value::of_truth(bool truth) {
  graph_value made = empty(graph_value_kind::boolean);
  made.truth = truth;
  return made;
}

graph_value graph_value::empty(graph_value_kind kind) {
  graph_value made;
  made.kind = kind;
  return made;
}

const graph_value* graph_value::find(std::string_view name) const noexcept {
  for (const graph_field& field : fields)
    if (field.name == name) return &field.value;
  return nullptr;
}

}  // namespace manyworlds::inline v0::detail
