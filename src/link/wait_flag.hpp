// wait_flag: "I wait; tell me", without a moment in which neither side sees the other.
#pragma once

#include <atomic>
#include <cstdint>

#include "link/shared_word.hpp"

namespace manyworlds::inline v0::detail::shm {

/// A word that one side raises before it waits, and that the other side takes down
/// after an act that may be waited for.
///
/// The waiter raises it, then looks once more; the other side acts, then looks at the
/// flag; each has a full fence between. So at least one of them sees what the other
/// did. The side that takes the flag down owes the waiter one notice. Notices may be
/// spurious.
template <class Memory>
class wait_flag {
 public:
  /// Called by the waiter. `look_again` returns true if it found what the waiter would
  /// wait for. Returns whether it must wait.
  template <class LookAgain>
  [[nodiscard]] bool raise_unless(LookAgain look_again) {
    raised_.store(1, std::memory_order_relaxed);
    Memory::full_fence();
    if (!look_again()) return true;
    lower();
    return false;
  }

  /// Called by the waiter when it no longer waits.
  void lower() noexcept { raised_.store(0, std::memory_order_relaxed); }

  /// Returns whether it was seen raised. Without a fence it may be overlooked.
  [[nodiscard]] bool is_raised() const noexcept {
    return raised_.load(std::memory_order_relaxed) != 0;
  }

  /// Called by the other side, with a full fence between its act and this. Returns
  /// whether it owes a notice. A waiter that overwrites the word costs no more than a
  /// notice.
  [[nodiscard]] bool take_after_fence() noexcept {
    return raised_.load(std::memory_order_relaxed) != 0 &&
           raised_.exchange(0, std::memory_order_relaxed) != 0;
  }

 private:
  typename Memory::template atomic<std::uint32_t> raised_;
};

}  // namespace manyworlds::inline v0::detail::shm
