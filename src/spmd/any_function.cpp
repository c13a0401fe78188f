#include "manyworlds/spmd/any_function.hpp"

#include <stdexcept>

#include "spmd/dropped_registers.hpp"

namespace manyworlds::inline v0 {

any_function::any_function(std::string_view name, bool is_alone)
    : name_(name), is_alone_(is_alone) {
  if (name_.empty())
    throw std::invalid_argument("any_function: a function without a name");
}

namespace detail {

named_register name_register(const register_node* node) {
  if (node == nullptr) throw std::invalid_argument("a dref that refers to nothing");
  return {node->id, node->of};
}

void write_all_arguments(remote_request& into, const any_arguments& given) {
  for (const auto& each : access::core(given)) {
    if (const auto* const value = std::get_if<any_value>(&each)) {
      into.values.any(*value);
      continue;
    }
    const auto& at = std::get<named_register>(each);
    const auto of = at.of.lock();
    if (!of) throw std::invalid_argument("the session of a dref has ended");
    if (of != into.core) throw std::invalid_argument("a dref of another session");
    into.take(at.which);
  }
}

}  // namespace detail

}  // namespace manyworlds::inline v0
