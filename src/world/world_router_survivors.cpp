// The part of a world router that serves the survivors of a view, and routes to
// shrink protocols.
#include <algorithm>

#include "manyworlds/detail/assertion.hpp"
#include "world/shrink_protocol.hpp"
#include "world/world_router.hpp"

namespace manyworlds::inline v0::detail {

bool world_router::begin(shrink_protocol& p) {
  MW_ASSERT(service_.is_current(), "a shrink protocol runs on the service reactor");
  for (const shrink_protocol* each : shrinking_) {
    if (each->base_id() == p.base_id()) return false;
  }
  shrinking_.push_back(&p);
  return true;
}

void world_router::end(const shrink_protocol& p) noexcept {
  std::erase_if(shrinking_, [&](const shrink_protocol* each) { return each == &p; });
}

void world_router::note_formed(const std::shared_ptr<world_core>& core) {
  MW_ASSERT(service_.is_current() && core->epoch() != 0,
            "a world that was formed is noted on the service reactor");
  next_examination_ = {};
  formed_view formed;
  formed.core = core;
  formed.rendezvous = &core->rendezvous();
  if (core->inherits()) {
    formed.origin = core->inherits()->origin;
    formed.view = core->view();
  } else {
    formed.view.epoch = core->view().epoch;
    formed.view.id = core->view().id;
  }
  list(core->options().name, std::move(formed));
}

void world_router::note_learned(const std::shared_ptr<world_core>& shrunk,
                                std::uint64_t origin, const world_view& view) {
  formed_view learned;
  learned.core = shrunk;
  learned.rendezvous = &shrunk->rendezvous();
  learned.origin = origin;
  learned.view = view;
  list(view.name, std::move(learned));
}

void world_router::list(const world_name& name, formed_view formed) {
  const std::lock_guard lock(mutex_);
  formed_views& known = formed_[name.str()];
  MW_ASSERT(known.last.size() <= most_formed, "few views of a name are kept (law 6)");
  if (known.last.size() == most_formed) {
    known.known_from = std::max(known.known_from, known.last.front().view.epoch);
    known.last.erase(known.last.begin());
  }
  // A weak pointer to a world that is gone must not keep its memory.
  for (formed_view& each : known.last) {
    if (each.core.expired()) each.core.reset();
  }
  known.last.push_back(std::move(formed));
}

void world_router::note_votes(const world_view& base,
                              const known_successors& successors) {
  const std::lock_guard lock(mutex_);
  const auto found = formed_.find(base.name.view());
  if (found == formed_.end()) return;
  for (formed_view& each : found->second.last) {
    if (each.view.id != base.id) continue;
    each.pending_votes = successors.pending_votes;
    each.has_more_pending_votes = successors.has_more_pending_votes;
  }
}

bool world_router::is_being_succeeded(std::uint64_t base) const {
  const auto worlds = snapshot();
  return std::any_of(worlds.begin(), worlds.end(), [&](const auto& w) {
    return w->inherits() && w->inherits()->origin == base && w->epoch() == 0;
  });
}

world_router::formed_views world_router::formed_as(const world_name& name) const {
  const std::lock_guard lock(mutex_);
  const auto found = formed_.find(name.view());
  return found == formed_.end() ? formed_views() : found->second;
}

void world_router::take_between_survivors(const std::shared_ptr<link>& from,
                                          control_message& message) {
  const std::uint64_t base = std::visit(
      [](const auto& m) -> std::uint64_t {
        if constexpr (requires { m.base; }) return m.base;
        return 0;
      },
      message);
  for (shrink_protocol* p : shrinking_) {
    if (p->base_id() == base) return p->take(from, std::move(message));
  }
  if (const auto* call = std::get_if<survivor_message>(&message)) {
    const auto answer = status_of(*call, from->peer().id);
    if (answer) from->send(encode(*answer));
  } else if (const auto* offered = std::get_if<successor_message>(&message)) {
    from->send(encode(broken_message{offered->view.id, cause::abandoned, no_rank,
                                     "a member has given up shrinking"}));
  }
}

std::optional<status_message> world_router::status_of(const survivor_message& call,
                                                      const incarnation& asker) const {
  status_message answer;
  answer.base = call.base;
  const formed_views known = formed_as(call.name);
  const auto base = std::find_if(known.last.begin(), known.last.end(),
                                 [&](auto& each) { return each.view.id == call.base; });
  const bool is_known = base != known.last.end();
  bool may_take_part = false;
  std::uint64_t gone_on_in = 0;
  if (!is_known && call.epoch < known.known_from) gone_on_in = known.known_from;
  if (is_known) answer.pending_votes = base->pending_votes;
  may_take_part |= is_known && base->has_more_pending_votes;
  for (const formed_view& each : known.last) {
    if (is_known && each.rendezvous != base->rendezvous) continue;
    const auto w = each.core.lock();
    const world_view& view = w && each.origin == 0 ? w->view() : each.view;
    const bool is_member = view.rank_of(asker) != no_rank;
    const bool is_open = w && w->may_take_part();
    if (each.origin == call.base && is_member) {
      answer.status = member_status::succeeded;
      answer.epoch = view.epoch;
      answer.view = view;
      return answer;
    }
    // A successor counts even if it is gone: its other members may live.
    const bool is_later = view.epoch > call.epoch && (is_open || each.origin != 0);
    if (is_later && !is_member) {
      gone_on_in = std::max(gone_on_in, view.epoch);
    } else {
      // Otherwise it asks for a view that was not seen committed here, and will tell of
      // that; or it hears of a later view through the views in between.
      may_take_part |= is_open || is_later;
    }
  }
  if (gone_on_in != 0) {
    answer.status = member_status::gone_on;
    answer.epoch = gone_on_in;
  } else if (may_take_part || is_being_succeeded(call.base)) {
    return std::nullopt;
  }
  return answer;
}

}  // namespace manyworlds::inline v0::detail
