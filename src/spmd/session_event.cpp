#include "manyworlds/spmd/session_event.hpp"

#include <optional>

#include "coro/event_hub.hpp"

namespace manyworlds::inline v0 {

using namespace detail;

std::string_view name_of(session_event_kind kind) noexcept {
  switch (kind) {
    case session_event_kind::ready:
      return "ready";
    case session_event_kind::suspect:
      return "suspect";
    case session_event_kind::recovered:
      return "recovered";
    case session_event_kind::stuck:
      return "stuck";
    case session_event_kind::freed:
      return "freed";
    case session_event_kind::lost:
      return "lost";
    case session_event_kind::replaced:
      return "replaced";
    case session_event_kind::not_replaced:
      return "not replaced";
    case session_event_kind::call_failed:
      break;
  }
  return "call failed";
}

std::uint64_t session_events::missed() const noexcept { return queue_->missed(); }

task<session_event> session_events::next_of(
    std::shared_ptr<event_queue<session_event>> queue) {
  std::optional<session_event> next = co_await queue->events().pop();
  if (!next) throw world_error(failure(cause::closed, "the session has ended"));
  co_return *std::move(next);
}

}  // namespace manyworlds::inline v0
