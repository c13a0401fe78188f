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

// A peer that polls our only CPU's memory could not run while we look. What it says is
// believed: it can make us sleep sooner, and no more.
bool endpoint::may_share_only_cpu(const link& l, cpu_binding cpu) const noexcept {
  if (!cpu.only_cpu() || !l.is_up()) return false;
  const bool is_here = l.is_local() || l.peer().identity.host == self().identity.host;
  // One that has not beaten yet may be bound as we are.
  return is_here && (!l.peer_cpu().is_known() || l.peer_cpu() == cpu);
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
  const cpu_binding cpu = user_ ? user_->binding() : cpu_binding();
  bool shares_only_cpu = false;
  for (const auto& l : links()) {
    shares_only_cpu |= may_share_only_cpu(*l, cpu);
    if (was_late) l->note_heard(now);
    l->on_host().return_slots();
    l->beat(progress, cpu, beat_is_due);
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
  if (user_ && adapts_spin_) user_->hold_spinning(shares_only_cpu);
  events_.examine_silence(now);
}

}  // namespace manyworlds::inline v0
