// Access: the one way from the public classes to the library's own layers.
#pragma once

#include <utility>

#include "manyworlds/detail/config.hpp"

namespace manyworlds::inline v0::detail {

/// The only friend of the public classes.
struct access {
  /// Returns the core of a world or a runtime. Errors: world_error (`invalid_argument`)
  /// for a handle without a world.
  template <class Handle>
  [[nodiscard]] static decltype(auto) core(Handle& handle) {
    return handle.existing_core();
  }
  /// Returns a share of it; null for a handle without a world.
  template <class Handle>
  [[nodiscard]] static const auto& core_ptr(const Handle& handle) noexcept {
    return handle.core_;
  }
  /// Makes a handle by a constructor that is not the user's.
  template <class Handle, class... Arguments>
  [[nodiscard]] static Handle make(Arguments&&... arguments) {
    return Handle(std::forward<Arguments>(arguments)...);
  }
};

}  // namespace manyworlds::inline v0::detail
