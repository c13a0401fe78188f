// Death notices: reports which peers on this host have died.
#pragma once

#include <cstdint>
#include <functional>

#include "link/liveness_futex.hpp"

namespace manyworlds::inline v0::detail::shm {

/// Watches the futexes that peers hold (their `held_liveness`). Thread: the service
/// reactor's.
class death_notices {
 public:
  enum class ticket : std::uint64_t { none };

  virtual ~death_notices() = default;
  /// Calls `died` on the reactor, once, when the futex says so, also if it already does.
  /// `died` may add and remove. Lifetime: the futex stays mapped until `remove`, also
  /// after the notice. Returns `none` if it cannot be watched; the other notices
  /// remain.
  [[nodiscard]] virtual ticket add(liveness_futex& futex, std::function<void()> died) = 0;
  /// Ends the watch: afterwards the futex is not touched and `died` is not called.
  virtual void remove(ticket t) noexcept = 0;
};

}  // namespace manyworlds::inline v0::detail::shm
