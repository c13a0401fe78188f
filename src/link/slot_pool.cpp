#include "link/slot_pool.hpp"

#include <fmt/format.h>

#include "link/wire.hpp"
#include "manyworlds/detail/assertion.hpp"

namespace manyworlds::inline v0::detail::shm {

slot_pool::slot_pool(int side) noexcept {
  MW_ASSERT(side == 0 || side == 1, "a link has two sides");
  for (unsigned slot = static_cast<unsigned>(side); slot < slot_count; slot += 2)
    own_.insert(slot);
}

std::optional<unsigned> slot_pool::find_free() const noexcept {
  for (unsigned slot = 0; slot < slot_count; ++slot) {
    if (own_.contains(slot) && is_free(slot)) return slot;
  }
  return std::nullopt;
}

void slot_pool::take(unsigned slot) noexcept {
  MW_ASSERT(slot < slot_count && is_free(slot), "only a free slot is taken");
  ours_.insert(slot);
  theirs_.insert(slot);
}

void slot_pool::take_from_peer(unsigned slot) {
  if (slot >= slot_count) throw wire_error(fmt::format("slot {} does not exist", slot));
  if (own_.contains(slot))
    throw wire_error(fmt::format("slot {} is not the peer's to hand out", slot));
  if (!is_free(slot)) throw wire_error(fmt::format("slot {} is in use already", slot));
  take(slot);
}

void slot_pool::peer_gave_back(const slot_set& slots) {
  slots.for_each([this](unsigned slot) {
    if (!theirs_.contains(slot))
      throw wire_error(
          fmt::format("the peer gives back slot {}, which it has not", slot));
    theirs_.erase(slot);
  });
}

slot_set slot_pool::left(bool own) const noexcept {
  slot_set all;
  for (unsigned slot = 0; slot < slot_count; ++slot) {
    if (is_free(slot) && own_.contains(slot) == own) all.insert(slot);
  }
  return all;
}

slot_set slot_pool::cede() noexcept {
  const slot_set mine = left(true);
  const unsigned many = mine.count();
  const unsigned few = left(false).count();
  slot_set ceded;
  if (2 * few >= many) return ceded;
  unsigned more = (many - few) / 2;
  mine.for_each([&](unsigned slot) {
    if (more == 0) return;
    --more;
    own_.erase(slot);
    ceded.insert(slot);
  });
  return ceded;
}

void slot_pool::take_ceded(const slot_set& slots) {
  slots.for_each([this](unsigned slot) {
    if (own_.contains(slot))
      throw wire_error(fmt::format("slot {} is not the peer's to cede", slot));
    if (!is_free(slot))
      throw wire_error(fmt::format("the peer cedes slot {}, which is in use", slot));
    own_.insert(slot);
  });
}

void slot_pool::give_back(unsigned slot) noexcept {
  MW_ASSERT(slot < slot_count, "a slot that comes back exists");
  // Release: pairs with the acquire in collect_returns(), so that the peer hears of it
  // after all use of the slot.
  [[maybe_unused]] const std::uint64_t before = returned_[slot / 64].fetch_or(
      std::uint64_t{1} << (slot % 64), std::memory_order_release);
  MW_ASSERT((before >> (slot % 64) & 1) == 0, "a slot is given back once");
}

slot_set slot_pool::collect_returns() noexcept {
  slot_set returns;
  for (std::size_t at = 0; at < slot_set::words; ++at) {
    returns.word(at) = returned_[at].exchange(0, std::memory_order_acquire);
    MW_ASSERT((returns.word(at) & ~ours_.word(at)) == 0, "only a taken slot comes back");
    ours_.word(at) &= ~returns.word(at);
  }
  return returns;
}

}  // namespace manyworlds::inline v0::detail::shm
