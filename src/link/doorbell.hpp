// Doorbells: which of a link's slots have something new, and whether the peer sleeps.
#pragma once

#include <array>
#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <utility>

#include "shared_word.hpp"
#include "wait_flag.hpp"

namespace manyworlds::inline v0::shm {

inline constexpr unsigned slot_count = 256;

/// Some of a link's slots.
class slot_set {
 public:
  static constexpr std::size_t words = slot_count / 64;

  void insert(unsigned slot) noexcept { bits_[slot / 64] |= bit(slot); }
  void insert(const slot_set& others) noexcept {
    for (std::size_t at = 0; at != words; ++at) bits_[at] |= others.bits_[at];
  }
  void erase(unsigned slot) noexcept { bits_[slot / 64] &= ~bit(slot); }
  [[nodiscard]] bool contains(unsigned slot) const noexcept {
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

/// Written by the side that reads the rings (and `sleeping` taken down by the other
/// side): does it sleep, and which slots does it look at of itself? Those are *hot*. It
/// changes rarely, so while messages flow both cores hold this line.
template <class Memory>
struct alignas(line_size) attention_line {
  wait_flag<Memory> sleeping;
  /// Changes while this side reads what the other has offered, near the end of it.
  typename Memory::template atomic<std::uint32_t> reads;
  std::array<typename Memory::template atomic<std::uint64_t>, slot_set::words> hot;
};

/// Rung by the side that writes the rings: slots that are not hot and have something.
template <class Memory>
struct alignas(line_size) bell_line {
  std::array<typename Memory::template atomic<std::uint64_t>, slot_set::words> rung;
};

/// The writing side's view of the peer. Whatever the peer puts into its lines, the worst
/// that follows is a needless ring or a missing one, to itself.
template <class Memory>
class basic_bell_ringer {
 public:
  basic_bell_ringer(attention_line<Memory>& peer, bell_line<Memory>& bell) noexcept
      : peer_(&peer), bell_(&bell) {}

  /// Once after a batch was published in `slot`. Returns whether the peer sleeps and must
  /// be woken through the socket.
  [[nodiscard]] bool notify(unsigned slot) noexcept {
    // Pairs with the fences in go_cold() and prepare_sleep(): either the peer's look
    // after them finds the cells, or we see the slot cold, or the peer asleep.
    Memory::full_fence();
    ring(slot / 64, std::uint64_t{1} << (slot % 64));
    return peer_->sleeping.take_after_fence();
  }

  /// Nothing was published: whether the peer sleeps and should be woken all the same.
  [[nodiscard]] bool wake() noexcept {
    Memory::full_fence();
    return peer_->sleeping.take_after_fence();
  }

  /// Whether the peer has read some of what we offered since the last call.
  [[nodiscard]] bool has_read() noexcept {
    const auto reads = peer_->reads.load(std::memory_order_relaxed);
    return std::exchange(reads_seen_, reads) != reads;
  }

  /// `notify` for several slots, with one fence.
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
    // The bell too is something that the sleeper's second look must not miss.
    Memory::full_fence();
  }

  attention_line<Memory>* peer_;
  bell_line<Memory>* bell_;
  std::uint32_t reads_seen_ = 0;
};

/// The reading side: what was rung, what is hot, and how to fall asleep.
template <class Memory>
class basic_bell_listener {
 public:
  basic_bell_listener(attention_line<Memory>& own, bell_line<Memory>& bell) noexcept
      : own_(&own), bell_(&bell) {}

  /// Whether something was rung since the last take().
  [[nodiscard]] bool rung() const noexcept {
    std::uint64_t any = 0;
    for (const auto& word : bell_->rung) any |= word.load(std::memory_order_relaxed);
    return any != 0;
  }

  /// The slots rung since the last call. They are not rung again for the same cells: read
  /// each until its ring is empty, or make it hot.
  [[nodiscard]] slot_set take() noexcept {
    slot_set taken;
    for (std::size_t at = 0; at != slot_set::words; ++at)
      if (bell_->rung[at].load(std::memory_order_relaxed) != 0)
        taken.word(at) = bell_->rung[at].exchange(0, std::memory_order_acquire);
    return taken;
  }

  /// From now on the caller looks at the slot's ring of itself.
  void go_hot(unsigned slot) noexcept {
    hot_.insert(slot);
    tell(slot);
  }

  /// From now on the bell is rung for the slot. `look_again` says whether its ring has
  /// something; then the slot stays hot. Returns whether it is cold.
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

  /// The other side should not fall asleep just now.
  void note_reading() noexcept { own_->reads.store(++reads_, std::memory_order_relaxed); }

  /// Before sleeping. `look_again` says whether the ring of any hot slot has something.
  /// Returns whether to sleep; whoever publishes from now on wakes through the socket.
  template <class LookAgain>
  [[nodiscard]] bool prepare_sleep(LookAgain look_again) {
    return own_->sleeping.raise_unless([&] { return rung() || look_again(); });
  }

  /// After sleeping, whatever ended it.
  void cancel_sleep() noexcept { own_->sleeping.lower(); }

 private:
  // From our copy: the line itself could have been scribbled on.
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

}  // namespace manyworlds::inline v0::shm
