// What an endpoint does now and then: signs of life, and the end of links that nobody
// uses.
#include "manyworlds/coro/sleep.hpp"
#include "manyworlds/link/endpoint.hpp"
#include "neighbour.hpp"

namespace manyworlds::inline v0 {

namespace {

/// A link nobody uses is kept this long: the next world with the peer is formed sooner.
constexpr duration linger = std::chrono::seconds(5);

}  // namespace

task<void> endpoint::beat() {
  for (;;) {
    co_await sleep_for(options_.heartbeat / 4);
    beat_once();
  }
}

void endpoint::beat_once() {
  const time_point now = service_.now();
  // A detector that was late itself (stopped, starved, a paused machine) has not
  // listened: it gives every peer a new window instead of accusing it.
  const bool was_late = now - last_look_ > options_.heartbeat;
  const bool beat_is_due = now.time_since_epoch() / options_.heartbeat !=
                           last_look_.time_since_epoch() / options_.heartbeat;
  last_look_ = now;
  // Parked counts as a turn: it would make one at once. A reactor that is neither is
  // blocked in user code, and its peers forbear (law 8).
  if (user_ && user_->is_parked()) ++beats_parked_;
  const std::uint64_t progress = user_ ? user_->turns() + beats_parked_ : 0;
  for (const auto& l : links()) {
    if (was_late) l->note_heard(now);
    l->on_host().return_slots();
    l->beat(progress, beat_is_due);
    const auto e = entry_of(l->peer().id);
    if (l->is_held() || l->take_declined()) {
      e->unused_since = now;
    } else if (now - e->unused_since > linger + greeting_limit) {
      l->end(cause::closed, "the peer did not answer");
    } else if (now - e->unused_since > linger) {
      l->offer_end();
    }
  }
  // Peers that were dialled in vain leave no trace.
  std::erase_if(entries_, [](const auto& each) {
    const auto& e = each.second;
    return !e->up && !e->dialling && e.use_count() == 1;
  });
  events_.examine_silence(now);
}

}  // namespace manyworlds::inline v0
