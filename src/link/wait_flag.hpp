// wait_flag: "I wait; tell me", without a moment in which neither side sees the other.
#pragma once

#include <atomic>
#include <cstdint>

#include "shared_word.hpp"

namespace manyworlds::inline v0::shm {

/// A word that one side raises before it waits, and that the other side takes down after
/// it has done something that may be waited for.
///
/// The waiter raises it, then looks once more; the other side acts, then looks at the
/// flag; each has a full fence between. So at least one of them sees what the other did,
/// and whoever takes the flag down owes the waiter one notice. Notices may be spurious.
template <class Memory>
class wait_flag {
 public:
  /// By the waiter. `look_again` says whether there is still a reason to wait for
  /// nothing: true if it found what it would wait for. Returns whether it must wait.
  template <class LookAgain>
  [[nodiscard]] bool raise_unless(LookAgain look_again) {
    raised_.store(1, std::memory_order_relaxed);
    Memory::full_fence();
    if (!look_again()) return true;
    lower();
    return false;
  }

  /// By the waiter, when it waits no longer.
  void lower() noexcept { raised_.store(0, std::memory_order_relaxed); }

  /// By the other side, with a full fence between its deed and this. Returns whether it
  /// owes a notice. The word is the waiter's to scribble on, and all that costs is a
  /// notice.
  [[nodiscard]] bool take_after_fence() noexcept {
    return raised_.load(std::memory_order_relaxed) != 0 &&
           raised_.exchange(0, std::memory_order_relaxed) != 0;
  }

 private:
  typename Memory::template atomic<std::uint32_t> raised_;
};

}  // namespace manyworlds::inline v0::shm
