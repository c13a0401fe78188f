#include "own_orders.hpp"

#include <algorithm>
#include <utility>
#include <variant>

namespace manyworlds::inline v0::nccl {

void own_orders::note_sent(std::uint64_t number) noexcept {
  const auto found = std::find_if(said_.begin(), said_.end(),
                                  [=](const message& m) { return m.number == number; });
  if (found != said_.end()) found->queued = way_.queued(found->peer);
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

void own_orders::forget_gone() noexcept {
  std::erase_if(said_, [this](const message& m) {
    return m.queued && way_.has_gone(m.peer, *m.queued);
  });
}

}  // namespace manyworlds::inline v0::nccl
