#include "own_orders.hpp"

#include <algorithm>
#include <utility>
#include <variant>

namespace manyworlds::inline v0::nccl {

void own_orders::note_sent(std::uint64_t number) noexcept {
  // None is taken out before it is noted, so the numbers follow one another.
  message& sent = said_[static_cast<std::size_t>(number - said_.front().number)];
  sent.queued = way_.queued(sent.peer);
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

// Only the oldest can hold up an order. All of them asked at each message made a stream
// of small messages 40 % slower.
void own_orders::forget_gone() noexcept {
  while (!said_.empty()) {
    const message& oldest = said_.front();
    if (!oldest.queued || !way_.has_gone(oldest.peer, *oldest.queued)) return;
    said_.pop_front();
  }
}

}  // namespace manyworlds::inline v0::nccl
