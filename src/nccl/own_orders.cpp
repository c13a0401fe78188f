#include "own_orders.hpp"

#include <algorithm>
#include <utility>

namespace manyworlds::inline v0::nccl {

void own_orders::note_sent(std::uint64_t number) noexcept {
  const auto found = std::lower_bound(unsent_.begin(), unsent_.end(), number);
  if (found != unsent_.end() && *found == number) unsent_.erase(found);
}

std::optional<order_message> own_orders::take() {
  if (waiting_.empty()) return std::nullopt;
  own_order& oldest = waiting_.front();
  if (!unsent_.empty() && unsent_.front() <= oldest.said) return std::nullopt;
  if (!oldest.leaving) {
    oldest.leaving.emplace();
    for (rank_t peer = 0; peer < size_; ++peer) {
      const std::uint64_t queued = way_.queued(peer);
      if (!way_.has_gone(peer, queued)) oldest.leaving->push_back({peer, queued});
    }
  }
  std::erase_if(*oldest.leaving, [this](const behind& each) {
    return way_.has_gone(each.peer, each.queued);
  });
  if (!oldest.leaving->empty()) return std::nullopt;
  std::optional<order_message> text = std::move(oldest.text);
  waiting_.pop_front();
  return text;
}

}  // namespace manyworlds::inline v0::nccl
