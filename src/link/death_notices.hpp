// Death notices: who of our peers on this host has died.
#pragma once

#include <cstdint>
#include <functional>

#include "robust_word.hpp"

namespace manyworlds::inline v0::shm {

/// Looks after the words that peers hold (`held_life` there). All calls on the service
/// reactor's thread.
class death_notices {
 public:
  enum class ticket : std::uint64_t { none };

  virtual ~death_notices() = default;
  /// Calls `died` on the reactor, once, when the word says so: also if it does already.
  /// It may add and remove. The word stays mapped until `remove`, also after the notice.
  /// `none`: it cannot be watched, and the other notices remain.
  [[nodiscard]] virtual ticket add(life_word& word, std::function<void()> died) = 0;
  /// After it nobody touches the word, and `died` is not called.
  virtual void remove(ticket t) noexcept = 0;
};

}  // namespace manyworlds::inline v0::shm
