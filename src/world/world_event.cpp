#include "manyworlds/world/world_event.hpp"

#include <optional>

#include "coro/event_hub.hpp"

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

std::uint64_t world_events::missed() const noexcept { return queue_->missed(); }

task<world_event> world_events::next_of(std::shared_ptr<event_queue<world_event>> queue) {
  const std::optional<world_event> next = co_await queue->events().pop();
  if (!next)
    throw world_error(failure(cause::runtime_stopped, "its worlds' runtime has ended"));
  co_return *next;
}

}  // namespace manyworlds::inline v0
