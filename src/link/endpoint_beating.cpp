// Beating: an endpoint shows signs of life periodically, and ends unused links.
#include "link/endpoint.hpp"

#include <algorithm>

#include "link/local_peer.hpp"
#include "manyworlds/coro/sleep.hpp"
#include "manyworlds/detail/assertion.hpp"

namespace manyworlds::inline v0::detail {

namespace {

/// An unused link is kept this long, so that the next world with the peer forms sooner.
constexpr duration linger = std::chrono::seconds(5);

}  // namespace

task<void> endpoint::beat() {
  for (;;) {
    co_await sleep_for(options_.heartbeat / 4);
    beat_once();
  }
}

// A peer that is bound to our only CPU cannot run while we spin. It is believed, since
// a lie only makes us sleep sooner.
bool endpoint::may_share_only_cpu(const link& l, cpu_binding cpu) const noexcept {
  if (!cpu.only_cpu() || !l.is_up()) return false;
  const bool is_here =
      l.local().shares_memory() || l.peer().identity.host == self().identity.host;
  // A peer that has not beaten yet may be bound to the same CPU.
  return is_here && (!l.peer_cpu().is_known() || l.peer_cpu() == cpu);
}

void endpoint::beat_once() {
  MW_ASSERT(service_.is_current(), "links beat on the service reactor");
  const time_point now = service_.now();
  // A detector that was late itself (stopped, starved, a paused machine) has not
  // listened: it gives every peer a new window instead of accusing it.
  const bool was_late = now - last_look_ > options_.heartbeat;
  // Bounded by a heartbeat for each look, so that the link to a peer that does not answer
  // ends also where every look is late.
  const duration missed =
      was_late ? now - last_look_ - options_.heartbeat : duration::zero();
  const bool beat_is_due = now.time_since_epoch() / options_.heartbeat !=
                           last_look_.time_since_epoch() / options_.heartbeat;
  last_look_ = now;
  // Parked counts as a turn, since the reactor would make one at once. A reactor that
  // is neither is blocked in user code, and its peers tolerate that (law 8).
  if (user_ && user_->is_parked()) ++beats_parked_;
  const std::uint64_t progress = user_ ? user_->turns() + beats_parked_ : 0;
  const cpu_binding cpu = user_ ? user_->binding() : cpu_binding();
  bool shares_only_cpu = false;
  for (const auto& l : links()) {
    shares_only_cpu |= may_share_only_cpu(*l, cpu);
    if (was_late) l->note_heard(now);
    l->local().return_slots();
    l->beat(progress, cpu, beat_is_due);
    const auto e = entry_of(l->peer().id);
    // While we did not look, we neither read the peer's answer nor saw that the link was
    // in use.
    e->unused_since = std::min(now, e->unused_since + missed);
    if (l->is_held() || l->take_declined()) {
      e->unused_since = now;
    } else if (l->is_usable() && now - e->unused_since > linger) {
      l->offer_end();
      // The peer can answer from now on only, however long the link was unused.
      e->unused_since = now - linger;
    } else if (now - e->unused_since > linger + greeting_limit) {
      MW_ASSERT(!l->is_usable(), "a peer that was not asked owes no answer");
      l->end(cause::closed, "the peer did not answer");
    }
  }
  // Peers that could not be dialled leave no entry.
  std::erase_if(entries_, [](const auto& each) {
    const auto& e = each.second;
    return !e->up && !e->dialling && e.use_count() == 1;
  });
  if (user_ && adapts_spin_) user_->hold_spinning(shares_only_cpu);
  told_.examine_silence(now);
}

}  // namespace manyworlds::inline v0::detail
