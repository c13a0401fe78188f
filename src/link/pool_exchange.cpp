#include "link/pool_exchange.hpp"

#include <algorithm>
#include <cerrno>
#include <new>
#include <span>
#include <utility>

#include "manyworlds/detail/assertion.hpp"

namespace manyworlds::inline v0::detail::shm {

namespace {

/// More than a peer that follows the protocol can have under way.
constexpr unsigned packets_at_once = 2 * most_pools;

}  // namespace

bool pool_exchange::say(const pool_notice& what, int descriptor) noexcept {
  const std::span<const int> carried(&descriptor, descriptor >= 0 ? 1 : 0);
  return send_packet(line_.get(), std::as_bytes(std::span(&what, 1)), carried) == 0;
}

std::optional<unsigned> pool_exchange::name_for_peer(const pool_memory& pool) noexcept {
  const auto named = std::find_if(told_pools_.begin(), told_pools_.end(),
                                  [&](const told_pool& t) { return t.id == pool.id(); });
  if (named != told_pools_.end()) {
    return static_cast<unsigned>(named - told_pools_.begin());
  }
  // Names may have become free meanwhile.
  poll();
  const auto free = std::find_if(told_pools_.begin(), told_pools_.end(),
                                 [](const told_pool& t) { return t.id == 0; });
  if (free == told_pools_.end()) return std::nullopt;
  const auto index = static_cast<unsigned>(free - told_pools_.begin());
  // Sent before the offer that names it is published, so that a reader of the offer
  // finds it. It fails if the peer takes none, or may have no more descriptors under
  // way.
  if (!say({pool_notice::what::pool, index, pool.size()}, pool.descriptor())) {
    return std::nullopt;
  }
  MW_ASSERT(told_ < most_pools, "a free name is among those not told");
  if (told_ == 0) removals_seen_ = ours_->removals();
  *free = {pool.id(), false};
  ++told_;
  return index;
}

bool pool_exchange::tell_gone() noexcept {
  // Read first: a pool that goes after that is seen by the next call.
  const std::uint64_t removals = ours_->removals();
  bool all = true;
  bool any = false;
  for (unsigned i = 0; i < most_pools; ++i) {
    told_pool& t = told_pools_[i];
    if (t.id == 0 || t.gone || ours_->has(t.id)) continue;
    t.gone = say({pool_notice::what::gone, i, 0});
    any = any || t.gone;
    all = all && t.gone;
  }
  if (all) removals_seen_ = removals;
  return any;
}

std::shared_ptr<mapped_pool> pool_exchange::pool_of_peer(std::uint64_t name,
                                                         const char*& wrong) noexcept {
  wrong = nullptr;
  if (name >= most_pools) {
    wrong = "an offer from a shared pool that cannot be one";
    return nullptr;
  }
  if (!known_[name].is_known) poll();
  known_pool& k = known_[name];
  wrong = k.is_known ? k.wrong : "an offer from a shared pool that was not passed";
  return k.pool;
}

void pool_exchange::poll() noexcept {
  if (!line_) return;
  if (std::exchange(owes_answers_, false)) {
    for (unsigned i = 0; i < most_pools; ++i) {
      if (known_[i].owes_answer) answer(i);
    }
  }
  for (unsigned i = 0; i < packets_at_once; ++i) {
    pool_notice notice;
    passed_descriptors passed;
    const io_result got = receive_packet(
        line_.get(), std::as_writable_bytes(std::span(&notice, 1)), passed);
    if (!got.ok() && got.error() == EBADMSG) {
      // There was no room for its descriptor: its payloads come by other ways.
      if (notice.kind == pool_notice::what::pool && notice.index < most_pools) {
        known_[notice.index].is_known = true;
      }
      continue;
    }
    if (!got.ok() || got.count() != sizeof notice) return;
    take(notice, std::move(passed[0]));
  }
}

std::uint64_t pool_exchange::pass_page(unsigned slot, int descriptor) noexcept {
  MW_ASSERT(slot < slot_count, "a page belongs to a slot");
  const std::uint64_t token = pages_passed_ + 1;
  if (!line_ || !say({pool_notice::what::page, slot, token}, descriptor)) return 0;
  pages_passed_ = token;
  return token;
}

unique_descriptor pool_exchange::take_page(unsigned slot, std::uint64_t token) noexcept {
  // The page was passed before it was named, and no more than this is under way.
  for (unsigned tries = 0; tries < 4; ++tries) {
    poll();
    for (passed_page& p : pages_) {
      if (p.slot == slot && p.token == token) return std::move(p.file);
    }
  }
  return {};
}

void pool_exchange::forget_page(unsigned slot) noexcept {
  std::erase_if(pages_, [slot](const passed_page& p) { return p.slot == slot; });
}

void pool_exchange::keep_page(const pool_notice& notice,
                              unique_descriptor file) noexcept {
  if (notice.index >= slot_count || !file) return;
  // An older one is of a world that is over.
  forget_page(notice.index);
  try {
    pages_.push_back({notice.index, notice.bytes, std::move(file)});
  } catch (const std::bad_alloc&) {
    // Its world does without pages.
  }
}

void pool_exchange::take(const pool_notice& notice, unique_descriptor file) noexcept {
  if (notice.kind == pool_notice::what::page) return keep_page(notice, std::move(file));
  if (notice.index >= most_pools) return;
  known_pool& k = known_[notice.index];
  told_pool& t = told_pools_[notice.index];
  switch (notice.kind) {
    case pool_notice::what::pool:
      if (k.is_known) {
        k.wrong = "a shared pool under the name of another";
        return;
      }
      k.is_known = true;
      try {
        k.pool = mapped_pool::map(file, notice.bytes, k.wrong);
      } catch (const std::bad_alloc&) {
        // As without address space, its payloads come by other ways.
      }
      mapped_ += k.pool ? 1 : 0;
      MW_ASSERT(mapped_ <= most_pools, "a name stands for one mapping");
      return;
    case pool_notice::what::gone:
      MW_ASSERT(!k.pool || mapped_ > 0, "a mapping is counted until it goes");
      mapped_ -= k.pool ? 1 : 0;
      k = {};
      return answer(notice.index);
    case pool_notice::what::unmapped:
      if (t.id == 0 || !t.gone) return;
      MW_ASSERT(told_ > 0, "a pool that was told is counted until it is unmapped");
      t = {};
      --told_;
      return;
    case pool_notice::what::page:
      return;
  }
}

void pool_exchange::answer(unsigned index) noexcept {
  MW_ASSERT(index < most_pools, "an answer is about a name");
  known_[index].owes_answer = !say({pool_notice::what::unmapped, index, 0});
  owes_answers_ = owes_answers_ || known_[index].owes_answer;
}

}  // namespace manyworlds::inline v0::detail::shm
