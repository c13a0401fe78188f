#include "spmd/register_file.hpp"

#include <utility>

#include "manyworlds/detail/assertion.hpp"

namespace manyworlds::inline v0::detail {

register_file::place& register_file::renew(register_id which) {
  if (which.index >= most_registers)
    throw value_error("there is no register " + std::to_string(which.index));
  if (which.index >= places_.size()) places_.resize(which.index + std::size_t{1});
  place& at = places_[which.index];
  if (which.generation < at.generation) {
    throw value_error("register " + std::to_string(which.index) +
                      " is filled by a later call already");
  }
  if (at.value.type) --held_;
  at = place{which.generation, {}, {}};
  return at;
}

void register_file::fill(register_id which, held_value value) {
  MW_ASSERT(value.type.has_value(), "a register is filled with a value of a type");
  renew(which).value = std::move(value);
  ++held_;
}

void register_file::fail(register_id which, std::uint64_t call,
                         const std::string& function) {
  renew(which).failure = "call " + std::to_string(call) + " of " + function +
                         ", which should have made it, failed";
}

void register_file::fill_nothing(register_id which, std::uint64_t call,
                                 const std::string& function) {
  renew(which).failure =
      "call " + std::to_string(call) + " of " + function + " gave nothing";
}

void register_file::release(register_id which) noexcept {
  if (which.index >= places_.size()) return;
  place& at = places_[which.index];
  if (at.generation != which.generation) return;
  if (at.value.type) --held_;
  // The value goes last: its destructor is the user's.
  const held_value gone = std::exchange(at.value, {});
  at.failure.clear();
}

const held_value& register_file::find(register_id which) {
  const bool is_here =
      which.index < places_.size() && places_[which.index].generation == which.generation;
  if (!is_here ||
      (!places_[which.index].value.type && places_[which.index].failure.empty())) {
    throw value_error("register " + std::to_string(which.index) +
                      " holds nothing on this worker");
  }
  const place& at = places_[which.index];
  if (!at.failure.empty()) throw value_error(at.failure);
  return at.value;
}

}  // namespace manyworlds::inline v0::detail
