// Doorbells: say which slots of a link have something new, and whether the peer sleeps.
#pragma once

#include <array>
#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <utility>

#include "link/shared_word.hpp"
#include "link/wait_flag.hpp"
#include "manyworlds/detail/assertion.hpp"

namespace manyworlds::inline v0::detail::shm {

inline constexpr unsigned slot_count = 256;

/// A set of slots of a link.
class slot_set {
 public:
  static constexpr std::size_t words = slot_count / 64;
  static_assert(slot_count % 64 == 0 && words == 4, "`empty` looks at four words");

  void insert(unsigned slot) noexcept {
    MW_ASSERT(slot < slot_count, "a slot lies in the set");
    bits_[slot / 64] |= bit(slot);
  }
  void insert(const slot_set& others) noexcept {
    for (std::size_t at = 0; at != words; ++at) bits_[at] |= others.bits_[at];
  }
  void erase(unsigned slot) noexcept {
    MW_ASSERT(slot < slot_count, "a slot lies in the set");
    bits_[slot / 64] &= ~bit(slot);
  }
  [[nodiscard]] bool contains(unsigned slot) const noexcept {
    MW_ASSERT(slot < slot_count, "a slot lies in the set");
    return (bits_[slot / 64] & bit(slot)) != 0;
  }
  [[nodiscard]] bool empty() const noexcept {
    return (bits_[0] | bits_[1] | bits_[2] | bits_[3]) == 0;
  }
  [[nodiscard]] unsigned count() const noexcept {
    int all = 0;
    for (const std::uint64_t word : bits_) all += std::popcount(word);
    return static_cast<unsigned>(all);
  }
  [[nodiscard]] std::uint64_t& word(std::size_t at) noexcept { return bits_[at]; }
  [[nodiscard]] std::uint64_t word(std::size_t at) const noexcept { return bits_[at]; }

  template <class Visit>
  void for_each(Visit visit) const {
    for (unsigned at = 0; at != words; ++at)
      for (auto left = bits_[at]; left != 0; left &= left - 1)
        visit(at * 64 + static_cast<unsigned>(std::countr_zero(left)));
  }

 private:
  static constexpr std::uint64_t bit(unsigned slot) noexcept {
    return std::uint64_t{1} << (slot % 64);
  }
  std::array<std::uint64_t, words> bits_{};
};

/// Written by the side that reads the rings; the other side only takes down `sleeping`.
/// It says whether the reader sleeps, and which slots it polls: those are *hot*. It
/// changes rarely, so while messages flow both cores hold this line.
template <class Memory>
struct alignas(line_size) attention_line {
  wait_flag<Memory> sleeping;
  /// Changes near the end of this side's reading of what the other has offered.
  typename Memory::template atomic<std::uint32_t> reads;
  std::array<typename Memory::template atomic<std::uint64_t>, slot_set::words> hot;
};

/// Written by the side that writes the rings: slots that are not hot and have
/// something.
template <class Memory>
struct alignas(line_size) bell_line {
  std::array<typename Memory::template atomic<std::uint64_t>, slot_set::words> rung;
};

/// The writing side's view of the peer. The worst that a peer can cause by writing to
/// its lines is a needless or a missing wake-up of itself.
template <class Memory>
class basic_bell_ringer {
 public:
  basic_bell_ringer(attention_line<Memory>& peer, bell_line<Memory>& bell) noexcept
      : peer_(&peer), bell_(&bell) {}

  /// Called once after a batch was published in `slot`. Returns whether the peer sleeps
  /// and must be woken through the socket.
  [[nodiscard]] bool notify(unsigned slot) noexcept {
    MW_ASSERT(slot < slot_count, "a slot that is notified exists");
    // Pairs with the fences in go_cold() and prepare_sleep(): the peer's look after
    // them finds the cells, or we see the slot cold or the peer asleep.
    Memory::full_fence();
    ring(slot / 64, std::uint64_t{1} << (slot % 64));
    return peer_->sleeping.take_after_fence();
  }

  /// Returns whether the peer sleeps and should be woken although nothing was
  /// published.
  [[nodiscard]] bool wake() noexcept {
    Memory::full_fence();
    return peer_->sleeping.take_after_fence();
  }

  /// Says whether the peer has read some of what we offered since the last call.
  [[nodiscard]] bool has_read() noexcept {
    const auto reads = peer_->reads.load(std::memory_order_relaxed);
    return std::exchange(reads_seen_, reads) != reads;
  }

  /// Notifies of several slots with one fence.
  [[nodiscard]] bool notify(const slot_set& slots) noexcept {
    Memory::full_fence();
    for (std::size_t at = 0; at != slot_set::words; ++at)
      if (slots.word(at) != 0) ring(at, slots.word(at));
    return peer_->sleeping.take_after_fence();
  }

 private:
  void ring(std::size_t at, std::uint64_t slots) noexcept {
    const auto cold = slots & ~peer_->hot[at].load(std::memory_order_relaxed);
    if (cold == 0) [[likely]]
      return;
    // Release: pairs with the acquire in take(), which then sees the cells.
    bell_->rung[at].fetch_or(cold, std::memory_order_release);
    // The sleeper's second look must not miss the bell either.
    Memory::full_fence();
  }

  attention_line<Memory>* peer_;
  bell_line<Memory>* bell_;
  std::uint32_t reads_seen_ = 0;
};

/// The reading side: takes what was rung, keeps the hot slots, and prepares to sleep.
template <class Memory>
class basic_bell_listener {
 public:
  basic_bell_listener(attention_line<Memory>& own, bell_line<Memory>& bell) noexcept
      : own_(&own), bell_(&bell) {}

  /// Says whether something was rung since the last take().
  [[nodiscard]] bool rung() const noexcept {
    std::uint64_t any = 0;
    for (const auto& word : bell_->rung) any |= word.load(std::memory_order_relaxed);
    return any != 0;
  }

  /// Returns the slots rung since the last call. They are not rung again for the same
  /// cells: read each until its ring is empty, or make it hot.
  [[nodiscard]] slot_set take() noexcept {
    slot_set taken;
    for (std::size_t at = 0; at != slot_set::words; ++at)
      if (bell_->rung[at].load(std::memory_order_relaxed) != 0)
        taken.word(at) = bell_->rung[at].exchange(0, std::memory_order_acquire);
    return taken;
  }

  /// Makes the slot hot: from now on the caller polls its ring.
  void go_hot(unsigned slot) noexcept {
    MW_ASSERT(slot < slot_count, "a slot that goes hot exists");
    hot_.insert(slot);
    tell(slot);
  }

  /// Makes the slot cold: from now on the bell is rung for it. It stays hot if
  /// `look_again` says that its ring has something. Returns whether it is cold.
  template <class LookAgain>
  bool go_cold(unsigned slot, LookAgain look_again) {
    hot_.erase(slot);
    tell(slot);
    // Pairs with the fence in notify(): a writer that saw the slot hot published before
    // this look.
    Memory::full_fence();
    if (!look_again()) return true;
    go_hot(slot);
    return false;
  }

  [[nodiscard]] const slot_set& hot() const noexcept { return hot_; }

  /// Tells the other side not to fall asleep just now.
  void note_reading() noexcept { own_->reads.store(++reads_, std::memory_order_relaxed); }

  /// Called before sleeping. `look_again` says whether the ring of any hot slot has
  /// something. Returns whether to sleep; then a peer that publishes wakes us through
  /// the socket.
  template <class LookAgain>
  [[nodiscard]] bool prepare_sleep(LookAgain look_again) {
    return own_->sleeping.raise_unless([&] { return rung() || look_again(); });
  }

  /// Called after sleeping, no matter what ended it.
  void cancel_sleep() noexcept { own_->sleeping.lower(); }

 private:
  // Writes from the private copy: the peer could have overwritten the line.
  void tell(unsigned slot) noexcept {
    own_->hot[slot / 64].store(hot_.word(slot / 64), std::memory_order_relaxed);
  }

  attention_line<Memory>* own_;
  bell_line<Memory>* bell_;
  slot_set hot_;
  std::uint32_t reads_ = 0;
};

using bell_ringer = basic_bell_ringer<hardware_memory>;
using bell_listener = basic_bell_listener<hardware_memory>;

static_assert(sizeof(attention_line<hardware_memory>) == line_size);
static_assert(sizeof(bell_line<hardware_memory>) == line_size);

}  // namespace manyworlds::inline v0::detail::shm
