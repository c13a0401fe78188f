// The course of a conversation: all parts side by side, until the last has been said.
#include <algorithm>

#include "manyworlds/coro/scope.hpp"
#include "manyworlds/coro/when_all.hpp"
#include "manyworlds/coro/when_any.hpp"
#include "manyworlds/world/outcome.hpp"
#include "simulation/conversation.hpp"

namespace manyworlds_tests {

mw::task<void> conversation::hold(mw::task<void> collectives) {
  auto all_parts = [this, &collectives](mw::scope& s) -> mw::task<void> {
    scope_ = &s;
    s.spawn(note_the_end());
    const std::size_t lanes = spawn_lanes(s);
    s.spawn(counted(std::move(collectives)));
    s.spawn(counted(stay()));
    co_await ended(lanes + 2);
    s.cancel();
  };
  co_await mw::scope::run(all_parts);
  if (is_over()) throw mw::world_error(world_.failure());
  co_await part();
}

std::size_t conversation::spawn_lanes(mw::scope& s) {
  std::size_t parts = 0;
  const auto add = [&](mw::task<void> t) {
    s.spawn(counted(std::move(t)));
    ++parts;
  };
  for (mw::rank_t peer = 0; peer < world_.size(); ++peer) {
    if (peer == world_.rank()) continue;
    for (std::uint64_t l = 0; l < lane_styles; ++l) {
      const auto style = static_cast<lane_style>(l);
      if (!plan_.uses_lane[l]) continue;
      if (style != lane_style::any || peer == 0) add(send_all(peer, style));
      if (style != lane_style::any) add(receive_all(peer, style));
    }
  }
  if (plan_.uses_lane[static_cast<std::size_t>(lane_style::any)] && world_.rank() == 0) {
    add(receive_from_any());
  }
  return parts;
}

mw::task<void> conversation::note_the_end() {
  const mw::failure f = co_await world_.broken();
  if (f.breaks_world()) site_.story.broke(site_.process, instance_, f, now());
}

mw::task<void> conversation::counted(mw::task<void> part) {
  co_await std::move(part);
  ++ended_;
  progress_.set();
}

mw::task<void> conversation::ended(std::size_t parts) {
  while (ended_ < parts) {
    progress_.reset();
    co_await progress_.wait();
  }
}

mw::task<void> conversation::stay() {
  co_await mw::when_any(mw::sleep_until(plan_.quiet), world_.broken());
}

void conversation::say_goodbye() { site_.story.leaving(site_.process, instance_, now()); }

mw::task<void> conversation::part() {
  say_goodbye();
  // The others leave as soon as all is to be quiet, also while this member is stopped.
  const mw::time_point begun =
      world_.rank() == 0 ? std::max(plan_.quiet, formed_) : now();
  const std::uint64_t lane = parting_lane;
  // Within the first part of the time that leaving may take; then it may be cut short.
  const auto in_time = [&] { return now() - begun < 3s; };
  if (world_.rank() != 0) {
    const auto [how, left] =
        co_await mw::when_all(send_one(0, static_cast<lane_style>(lane),
                                       {epoch_, 1, true}, parting_size, patience{}),
                              mw::outcome(world_.leave()));
    if (how != step::done && left && in_time()) {
      site_.story.complain("law 1: leaving dropped what was being sent");
    }
    co_return;
  }
  for (mw::rank_t peer = 1; peer < world_.size(); ++peer) {
    co_await mw::sleep_for(random().at_most(2ms));
    message_word came;
    mw::rank_t from = peer;
    const step how = co_await take(peer, static_cast<lane_style>(lane), parting_size, {},
                                   nullptr, came, from);
    if (how != step::done && !is_over() && in_time()) {
      site_.story.complain("law 1: what was sent before a leave did not come");
    }
  }
}

}  // namespace manyworlds_tests
