#include "world/view_history.hpp"

#include <algorithm>

#include "manyworlds/detail/assertion.hpp"

namespace manyworlds::inline v0::detail {

std::uint64_t view_history::last_epoch(const world_name& name) const {
  const std::lock_guard lock(mutex_);
  const auto found = names_.find(name.view());
  return found == names_.end() ? 0 : found->second.last_epoch;
}

void view_history::note_epoch(const world_name& name, std::uint64_t epoch) {
  const std::lock_guard lock(mutex_);
  auto& last = names_[name.str()].last_epoch;
  last = std::max(last, epoch);
}

void view_history::forget(const world_name& name) noexcept {
  const std::lock_guard lock(mutex_);
  const auto found = names_.find(name.view());
  if (found != names_.end()) names_.erase(found);
}

void view_history::note_formed(const std::shared_ptr<world_core>& core) {
  MW_ASSERT(core->epoch() != 0, "a view that is noted was formed");
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
  add(core->options().name, std::move(formed));
}

void view_history::note_learned(const std::shared_ptr<world_core>& shrunk,
                                std::uint64_t origin, const world_view& view) {
  formed_view learned;
  learned.core = shrunk;
  learned.rendezvous = &shrunk->rendezvous();
  learned.origin = origin;
  learned.view = view;
  add(view.name, std::move(learned));
}

void view_history::add(const world_name& name, formed_view formed) {
  const std::lock_guard lock(mutex_);
  known_views& known = names_[name.str()];
  MW_ASSERT(known.formed.size() <= most_formed, "few views of a name are kept (law 6)");
  if (known.formed.size() == most_formed) {
    known.known_from = std::max(known.known_from, known.formed.front().view.epoch);
    known.formed.erase(known.formed.begin());
  }
  // A weak pointer to a world that is gone must not keep its memory.
  for (formed_view& each : known.formed) {
    if (each.core.expired()) each.core.reset();
  }
  known.formed.push_back(std::move(formed));
}

void view_history::note_votes(const world_view& base,
                              const known_successors& successors) {
  const std::lock_guard lock(mutex_);
  const auto found = names_.find(base.name.view());
  if (found == names_.end()) return;
  for (formed_view& each : found->second.formed) {
    if (each.view.id != base.id) continue;
    each.pending_votes = successors.pending_votes;
    each.has_more_pending_votes = successors.has_more_pending_votes;
  }
}

view_history::known_views view_history::known_as(const world_name& name) const {
  const std::lock_guard lock(mutex_);
  const auto found = names_.find(name.view());
  return found == names_.end() ? known_views() : found->second;
}

std::optional<status_message> view_history::status_of(const survivor_message& call,
                                                      const incarnation& asker,
                                                      bool is_succeeding) const {
  status_message answer;
  answer.base = call.base;
  const known_views known = known_as(call.name);
  const auto base = std::find_if(known.formed.begin(), known.formed.end(),
                                 [&](auto& each) { return each.view.id == call.base; });
  const bool is_known = base != known.formed.end();
  bool may_take_part = false;
  std::uint64_t gone_on_in = 0;
  if (!is_known && call.epoch < known.known_from) gone_on_in = known.known_from;
  if (is_known) answer.pending_votes = base->pending_votes;
  may_take_part |= is_known && base->has_more_pending_votes;
  for (const formed_view& each : known.formed) {
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
  } else if (may_take_part || is_succeeding) {
    return std::nullopt;
  }
  return answer;
}

}  // namespace manyworlds::inline v0::detail
