#include "serve/worker_pool.hpp"

#include <algorithm>

#include "manyworlds/detail/assertion.hpp"
#include "serve/call_state.hpp"
#include "serve/client_session.hpp"

namespace manyworlds::inline v0::detail {

void worker_choice::add(client_session& s) {
  sessions.push_back(&s);
  shown.push_back(s.status());
}

void worker_pool::remove(client_session& s) noexcept {
  [[maybe_unused]] const auto erased = std::erase(sessions_, &s);
  MW_ASSERT(erased == 1, "a worker that is served is listed once");
}

client_session* worker_pool::find(worker_id id) const noexcept {
  const auto found = std::find_if(sessions_.begin(), sessions_.end(),
                                  [&](const client_session* s) { return s->id() == id; });
  return found == sessions_.end() ? nullptr : *found;
}

std::vector<worker_status> worker_pool::statuses() const {
  std::vector<worker_status> all;
  for (const client_session* session : sessions_) {
    if (session->is_ready()) all.push_back(session->status());
  }
  return all;
}

void worker_pool::refresh_candidates() {
  candidates_.sessions.clear();
  candidates_.shown.clear();
  for (client_session* session : sessions_) {
    if (session->is_member()) candidates_.add(*session);
  }
}

bool worker_pool::has_room() const noexcept {
  return std::any_of(candidates_.sessions.begin(), candidates_.sessions.end(),
                     [](const client_session* s) { return s->has_room(); });
}

worker_choice worker_pool::others_than_its_own(const call_state& c) const {
  worker_choice others;
  for (client_session* session : sessions_) {
    if (session->is_member() && !session->is_silent() && !c.was_given_to(*session))
      others.add(*session);
  }
  return others;
}

bool worker_pool::is_alone() const noexcept {
  return std::none_of(sessions_.begin(), sessions_.end(),
                      [](const client_session* s) { return s->is_member(); });
}

bool worker_pool::has_room_at_suspects() const noexcept {
  return std::any_of(sessions_.begin(), sessions_.end(), [](const client_session* s) {
    return s->has_room() && (s->is_suspect() || s->is_silent());
  });
}

bool worker_pool::looks_frozen() noexcept {
  std::size_t members = 0;
  std::size_t silent = 0;
  for (const client_session* session : sessions_) {
    members += session->is_member();
    silent += session->is_member() && session->is_silent();
  }
  if (3 * silent > 2 * members) is_frozen_ = true;
  // When the machine goes on, one worker is heard before the next.
  if (silent == 0) is_frozen_ = false;
  return is_frozen_;
}

}  // namespace manyworlds::inline v0::detail
