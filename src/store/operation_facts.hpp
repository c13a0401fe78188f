// Operation facts: what clients need to know of a store's operations, in one place.
#pragma once

#include "manyworlds/store/store_error.hpp"

namespace manyworlds::inline v0::detail {

/// Returns whether it may last until another client does something.
[[nodiscard]] constexpr bool waits_for_others(store_operation o) noexcept {
  switch (o) {
    case store_operation::get:
    case store_operation::multi_get:
    case store_operation::pop:
    case store_operation::wait:
    case store_operation::barrier:
      return true;
    default:
      return false;
  }
}

/// Returns whether it may be asked again where the answer was lost.
[[nodiscard]] constexpr bool is_repeatable(store_operation o) noexcept {
  switch (o) {
    case store_operation::add:
    case store_operation::compare_set:
    case store_operation::append:
    case store_operation::push:
    case store_operation::pop:
    case store_operation::try_pop:
    case store_operation::barrier:
      return false;
    default:
      return true;
  }
}

/// Returns whether keys or values of queues may be there after it that were not before.
[[nodiscard]] constexpr bool sets_keys(store_operation o) noexcept {
  switch (o) {
    case store_operation::set:
    case store_operation::multi_set:
    case store_operation::add:
    case store_operation::append:
    case store_operation::compare_set:
    case store_operation::push:
    case store_operation::barrier:
      return true;
    default:
      return false;
  }
}

}  // namespace manyworlds::inline v0::detail
