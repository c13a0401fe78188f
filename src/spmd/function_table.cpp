#include "manyworlds/spmd/function_table.hpp"

#include <algorithm>
#include <stdexcept>

#include "manyworlds/detail/assertion.hpp"
#include "manyworlds/failure.hpp"
#include "spmd/command_wire.hpp"
#include "spmd/worker_device.hpp"

namespace manyworlds::inline v0 {

function_table::function_table(std::initializer_list<entry> entries) : entries_(entries) {
  for (const entry& each : entries_) {
    if (each.name().empty())
      throw std::invalid_argument("function table: a function without a name");
    if (each.name().size() > detail::command_wire::longest_name) {
      throw std::invalid_argument("function table: a name of " +
                                  std::to_string(each.name().size()) +
                                  " bytes: the longest has 255");
    }
  }
  std::ranges::sort(entries_, {}, &entry::name);
  const auto twice = std::ranges::adjacent_find(entries_, {}, &entry::name);
  if (twice != entries_.end()) {
    throw std::invalid_argument("function table: two functions are called \"" +
                                std::string(twice->name()) + "\"");
  }
}

const function_table::entry* function_table::find(std::string_view name) const noexcept {
  const auto at = std::ranges::lower_bound(entries_, name, {}, &entry::name);
  return at != entries_.end() && at->name() == name ? &*at : nullptr;
}

namespace detail {

void refuse_without_mesh() {
  failure f(cause::invalid_argument,
            "a function that was declared mw::alone has no world: other workers need not "
            "run it");
  throw world_error(std::move(f));
}

void call_frame::begin_argument() {
  ++taken_;
  if (!arguments_.is_at_end()) return;
  throw value_error("missing: the function takes " + std::to_string(parameters_));
}

void call_frame::expect_end() {
  if (!arguments_.is_at_end()) {
    ++taken_;
    throw value_error("one too many: the function takes " + std::to_string(parameters_));
  }
  has_begun_ = true;
}

std::vector<any_value> call_frame::take_rest() {
  std::vector<any_value> all;
  while (!arguments_.is_at_end()) {
    ++taken_;
    all.push_back(take_any());
  }
  return all;
}

any_value call_frame::take_any() {
  if (arguments_.next() != value_kind::reference) return arguments_.any();
  const held_value& held = registers_.find(arguments_.reference());
  MW_ASSERT(held.type && held.value, "a register that is found holds a value");
  if (held.read == nullptr) {
    throw value_error("a register of " + std::string(held.type->name()) +
                      ", which is no value");
  }
  return held.read(held.value.get());
}

const held_value& call_frame::find_held(std::string_view wanted) {
  const value_kind given = arguments_.next();
  if (given != value_kind::reference) {
    throw value_error(std::string(describe(given)) + ", where a dref of " +
                      std::string(wanted) + " is wanted");
  }
  const held_value& held = registers_.find(arguments_.reference());
  MW_ASSERT(held.type && held.value, "a register that is found holds a value");
  return held;
}

void check_type(const held_value& held, type_token wanted) {
  if (*held.type == wanted) return;
  throw value_error("a register of " + std::string(held.type->name()) + ", where " +
                    std::string(wanted.name()) + " is wanted");
}

task<void> call_frame::fetch_answer() {
  fetched_ = co_await copy_to_host(*to_fetch_);
  argument<tensor>::write(answer_, fetched_);
}

void call_frame::refuse_value(type_token type) {
  throw value_error("it gives " + std::string(type.name()) +
                    ", which is no value: keep it in a register, by a call without from "
                    "and all");
}

}  // namespace detail

}  // namespace manyworlds::inline v0
