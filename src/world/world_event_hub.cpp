#include "world/world_event_hub.hpp"

#include <algorithm>
#include <optional>
#include <utility>

namespace manyworlds::inline v0 {

using namespace detail;

std::string_view name_of(world_event_kind k) noexcept {
  switch (k) {
    case world_event_kind::formed:
      return "formed";
    case world_event_kind::suspect:
      return "suspect";
    case world_event_kind::recovered:
      return "recovered";
    case world_event_kind::broken:
      return "broken";
    case world_event_kind::closed:
      break;
  }
  return "closed";
}

void world_event_queue::put(const world_event& e, channel_waiters& told) noexcept {
  while (!events_.try_push(world_event(e), told)) {
    if (events_.try_pop()) missed_.fetch_add(1);
  }
}

std::uint64_t world_events::missed() const noexcept { return queue_->missed(); }

task<world_event> world_events::next_of(std::shared_ptr<world_event_queue> queue) {
  const std::optional<world_event> next = co_await queue->events().pop();
  if (!next)
    throw world_error(failure(cause::runtime_stopped, "its worlds' runtime has ended"));
  co_return *next;
}

void world_event_hub::tell(const world_event& e, channel_waiters& told) noexcept {
  const std::lock_guard lock(mutex_);
  for (const auto& each : subscribers_) {
    if (const auto queue = each.lock()) queue->put(e, told);
  }
}

world_events world_event_hub::subscribe(std::size_t capacity) {
  // Without a place an event could only go to a task that is just waiting for it.
  auto queue = std::make_shared<world_event_queue>(std::max<std::size_t>(capacity, 1));
  const std::lock_guard lock(mutex_);
  std::erase_if(subscribers_, [](const auto& each) { return each.expired(); });
  if (is_closed_) {
    queue->events().close();
  } else {
    subscribers_.push_back(queue);
  }
  return world_events(std::move(queue));
}

void world_event_hub::close() noexcept {
  std::vector<std::weak_ptr<world_event_queue>> told;
  {
    const std::lock_guard lock(mutex_);
    is_closed_ = true;
    told.swap(subscribers_);
  }
  for (const auto& each : told) {
    if (const auto queue = each.lock()) queue->events().close();
  }
}

}  // namespace manyworlds::inline v0
