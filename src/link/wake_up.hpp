// Wake-up: tells the reader of a link's rings which slots have something new, and wakes
// it if it sleeps.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <utility>

#include "link/shared_word.hpp"
#include "link/slot_set.hpp"
#include "link/wait_flag.hpp"
#include "manyworlds/detail/assertion.hpp"

namespace manyworlds::inline v0::detail::shm {

/// Written by the receiver of wake-ups, which reads the rings; the sender only takes down
/// `sleeping`. It says whether the receiver sleeps, and which slots it polls; the others
/// are *parked*. It changes rarely, so while messages flow both cores hold this line.
template <class Memory>
struct alignas(line_size) receiver_line {
  wait_flag<Memory> sleeping;
  /// Changes near the end of this side's reading of what the other has offered.
  typename Memory::template atomic<std::uint32_t> reads;
  std::array<typename Memory::template atomic<std::uint64_t>, slot_set::words> polled;
};

/// Written by the sender, which writes the rings: parked slots that have something.
template <class Memory>
struct alignas(line_size) wake_up_line {
  std::array<typename Memory::template atomic<std::uint64_t>, slot_set::words> slots;
};

/// The writing side's view of the receiver. The worst that a peer can cause by writing to
/// its lines is a needless or a missing wake-up of itself.
template <class Memory>
class basic_wake_up_sender {
 public:
  basic_wake_up_sender(receiver_line<Memory>& peer, wake_up_line<Memory>& line) noexcept
      : peer_(&peer), line_(&line) {}

  /// Called once after a batch was published in `slot`. Returns whether the peer sleeps
  /// and must be woken through the socket.
  [[nodiscard]] bool notify(unsigned slot) noexcept {
    MW_ASSERT(slot < slot_count, "a slot that is notified exists");
    // Pairs with the fences in park() and prepare_sleep(): the peer's look after them
    // finds the cells, or we see the slot parked or the peer asleep.
    Memory::full_fence();
    raise(slot / 64, std::uint64_t{1} << (slot % 64));
    return peer_->sleeping.take_after_fence();
  }

  /// Returns whether the peer sleeps and should be woken although nothing was
  /// published.
  [[nodiscard]] bool wake() noexcept {
    Memory::full_fence();
    return peer_->sleeping.take_after_fence();
  }

  /// Returns whether the peer seems to sleep. It may have woken up since.
  [[nodiscard]] bool seems_asleep() const noexcept { return peer_->sleeping.is_raised(); }

  /// Says whether the peer has read some of what we offered since the last call.
  [[nodiscard]] bool has_read() noexcept {
    const auto reads = peer_->reads.load(std::memory_order_relaxed);
    return std::exchange(reads_seen_, reads) != reads;
  }

  /// Notifies of several slots with one fence.
  [[nodiscard]] bool notify(const slot_set& slots) noexcept {
    Memory::full_fence();
    for (std::size_t at = 0; at != slot_set::words; ++at)
      if (slots.word(at) != 0) raise(at, slots.word(at));
    return peer_->sleeping.take_after_fence();
  }

 private:
  void raise(std::size_t at, std::uint64_t slots) noexcept {
    const auto parked = slots & ~peer_->polled[at].load(std::memory_order_relaxed);
    if (parked == 0) [[likely]]
      return;
    // Release: pairs with the acquire in take(), which then sees the cells.
    line_->slots[at].fetch_or(parked, std::memory_order_release);
    // The sleeper's second look must not miss the wake-up either.
    Memory::full_fence();
  }

  receiver_line<Memory>* peer_;
  wake_up_line<Memory>* line_;
  std::uint32_t reads_seen_ = 0;
};

/// The reading side: takes wake-ups, keeps the slots that it polls, and prepares to
/// sleep.
template <class Memory>
class basic_wake_up_receiver {
 public:
  basic_wake_up_receiver(receiver_line<Memory>& own, wake_up_line<Memory>& line) noexcept
      : own_(&own), line_(&line) {}

  /// Says whether a wake-up has come since the last take().
  [[nodiscard]] bool has_wake_ups() const noexcept {
    std::uint64_t any = 0;
    for (const auto& word : line_->slots) any |= word.load(std::memory_order_relaxed);
    return any != 0;
  }

  /// Returns the slots of the wake-ups since the last call. None comes again for the same
  /// cells: read each slot until its ring is empty, or poll it.
  [[nodiscard]] slot_set take() noexcept {
    slot_set taken;
    for (std::size_t at = 0; at != slot_set::words; ++at)
      if (line_->slots[at].load(std::memory_order_relaxed) != 0)
        taken.word(at) = line_->slots[at].exchange(0, std::memory_order_acquire);
    return taken;
  }

  /// From now on the caller polls the ring of the slot, and gets no wake-ups for it.
  void start_polling(unsigned slot) noexcept {
    MW_ASSERT(slot < slot_count, "a slot that is polled exists");
    polled_.insert(slot);
    publish(slot);
  }

  /// Parks the slot: from now on wake-ups come for it. It is polled on if `look_again`
  /// says that its ring has something. Returns whether it is parked.
  template <class LookAgain>
  bool park(unsigned slot, LookAgain look_again) {
    polled_.erase(slot);
    publish(slot);
    // Pairs with the fence in notify(): a writer that saw the slot polled published
    // before this look.
    Memory::full_fence();
    if (!look_again()) return true;
    start_polling(slot);
    return false;
  }

  [[nodiscard]] const slot_set& polled() const noexcept { return polled_; }

  /// Tells the other side not to fall asleep just now.
  void note_reading() noexcept { own_->reads.store(++reads_, std::memory_order_relaxed); }

  /// Called before sleeping. `look_again` says whether the ring of any polled slot has
  /// something. Returns whether to sleep; then a peer that publishes wakes us through
  /// the socket.
  template <class LookAgain>
  [[nodiscard]] bool prepare_sleep(LookAgain look_again) {
    return own_->sleeping.raise_unless([&] { return has_wake_ups() || look_again(); });
  }

  /// Called after sleeping, no matter what ended it.
  void cancel_sleep() noexcept { own_->sleeping.lower(); }

 private:
  // Writes from the private copy: the peer could have overwritten the line.
  void publish(unsigned slot) noexcept {
    own_->polled[slot / 64].store(polled_.word(slot / 64), std::memory_order_relaxed);
  }

  receiver_line<Memory>* own_;
  wake_up_line<Memory>* line_;
  slot_set polled_;
  std::uint32_t reads_ = 0;
};

using wake_up_sender = basic_wake_up_sender<hardware_memory>;
using wake_up_receiver = basic_wake_up_receiver<hardware_memory>;

static_assert(sizeof(receiver_line<hardware_memory>) == line_size);
static_assert(sizeof(wake_up_line<hardware_memory>) == line_size);

}  // namespace manyworlds::inline v0::detail::shm
