// Death notices: reports which peers on this host have died.
#pragma once

#include <cstdint>
#include <functional>

#include "link/robust_word.hpp"

namespace manyworlds::inline v0::detail::shm {

/// Watches the words that peers hold (their `held_life`). Thread: the service
/// reactor's.
class death_notices {
 public:
  enum class ticket : std::uint64_t { none };

  virtual ~death_notices() = default;
  /// Calls `died` on the reactor, once, when the word says so, also if it already does.
  /// `died` may add and remove. Lifetime: the word stays mapped until `remove`, also
  /// after the notice. Returns `none` if it cannot be watched; the other notices
  /// remain.
  [[nodiscard]] virtual ticket add(life_word& word, std::function<void()> died) = 0;
  /// Ends the watch: afterwards the word is not touched and `died` is not called.
  virtual void remove(ticket t) noexcept = 0;
};

}  // namespace manyworlds::inline v0::detail::shm
