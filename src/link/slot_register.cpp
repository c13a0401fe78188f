#include "slot_register.hpp"

#include <fmt/format.h>

#include "manyworlds/link/wire.hpp"

namespace manyworlds::inline v0::shm {

std::optional<unsigned> slot_register::find_free() const noexcept {
  for (unsigned slot = side_; slot < slot_count; slot += 2) {
    if (is_free(slot)) return slot;
  }
  return std::nullopt;
}

void slot_register::take(unsigned slot) noexcept {
  ours_.insert(slot);
  theirs_.insert(slot);
}

void slot_register::take_from_peer(unsigned slot) {
  if (slot >= slot_count) throw wire_error(fmt::format("slot {} does not exist", slot));
  if (slot % 2 == side_)
    throw wire_error(fmt::format("slot {} is not the peer's to hand out", slot));
  if (!is_free(slot)) throw wire_error(fmt::format("slot {} is in use already", slot));
  take(slot);
}

void slot_register::peer_gave_back(const slot_set& slots) {
  slots.for_each([this](unsigned slot) {
    if (!theirs_.contains(slot))
      throw wire_error(
          fmt::format("the peer gives back slot {}, which it has not", slot));
    theirs_.erase(slot);
  });
}

void slot_register::give_back(unsigned slot) noexcept {
  // Release: pairs with the acquire in collect_returns(); all that was done in the slot
  // has been done before the peer hears of it.
  returned_[slot / 64].fetch_or(std::uint64_t{1} << (slot % 64),
                                std::memory_order_release);
}

slot_set slot_register::collect_returns() noexcept {
  slot_set returns;
  for (std::size_t at = 0; at < slot_set::words; ++at) {
    returns.word(at) = returned_[at].exchange(0, std::memory_order_acquire);
    ours_.word(at) &= ~returns.word(at);
  }
  return returns;
}

}  // namespace manyworlds::inline v0::shm
