#include "nccl/own_orders.hpp"

#include <algorithm>
#include <utility>
#include <variant>

#include "manyworlds/detail/assertion.hpp"

namespace manyworlds::inline v0::detail::nccl {

void own_orders::note_sent(std::uint64_t number) noexcept {
  const auto sent = std::partition_point(
      said_.begin(), said_.end(), [=](const message& m) { return m.number < number; });
  MW_ASSERT(sent != said_.end() && sent->number == number && !sent->queued,
            "a message is noted once, after it was said");
  sent->queued = way_.queued(sent->peer);
  forget_gone();
}

bool own_orders::have_launch() const noexcept {
  return std::any_of(waiting_.begin(), waiting_.end(), [](const own_order& each) {
    return std::holds_alternative<collective_launch>(each.text) ||
           std::holds_alternative<pair_launch>(each.text) ||
           std::holds_alternative<connect_message>(each.text);
  });
}

std::optional<order_message> own_orders::take() {
  if (waiting_.empty()) return std::nullopt;
  forget_gone();
  // Also what was said to members that this one does not concern: an operation that they
  // learn of later may stand before it.
  if (!said_.empty() && said_.front().number <= waiting_.front().said)
    return std::nullopt;
  std::optional<order_message> text = std::move(waiting_.front().text);
  waiting_.pop_front();
  return text;
}

// Only the oldest can hold up an order, so the others are rarely asked about: all of them
// asked at each message made a stream of small messages 40 % slower.
void own_orders::forget_gone() noexcept {
  while (!said_.empty() && has_gone(said_.front())) said_.pop_front();
  if (said_.size() < next_look_) return;
  std::erase_if(said_, [this](const message& m) { return has_gone(m); });
  next_look_ = std::max(first_look, 2 * said_.size());
}

bool own_orders::has_gone(const message& m) const noexcept {
  return m.queued && way_.has_gone(m.peer, *m.queued);
}

}  // namespace manyworlds::inline v0::detail::nccl
