#include "simulation/traffic.hpp"

#include "manyworlds/coro/sleep.hpp"
#include "manyworlds/serve/keep.hpp"
#include "simulation/conversation.hpp"

namespace manyworlds_tests {

mw::task<void> talk(cluster& all, member_process& self, const world_plan& plan,
                    mw::world& w) {
  conversation c(all, self, plan, w);
  auto everybody = [&c, &plan, &w](mw::scope& s) -> mw::task<void> {
    c.within_scope(s);
    s.spawn(c.note_the_end());
    std::size_t parts = 0;
    for (mw::rank_t peer = 0; peer < w.size(); ++peer) {
      if (peer == w.rank()) continue;
      for (std::uint64_t l = 0; l < lane_styles; ++l) {
        const auto style = static_cast<lane_style>(l);
        if (!plan.uses_lane[l]) continue;
        if (style != lane_style::any || peer == 0) {
          s.spawn(c.counted(c.send_all(peer, style)));
          ++parts;
        }
        if (style != lane_style::any) {
          s.spawn(c.counted(c.receive_all(peer, style)));
          ++parts;
        }
      }
    }
    if (plan.uses_lane[static_cast<std::size_t>(lane_style::any)] && w.rank() == 0) {
      s.spawn(c.counted(c.receive_from_any()));
      ++parts;
    }
    s.spawn(c.counted(c.pass_barriers()));
    s.spawn(c.counted(c.stay()));
    parts += 2;
    co_await c.ended(parts);
    s.cancel();
  };
  co_await mw::scope::run(everybody);
  if (w.state() == mw::world_state::broken) throw mw::world_error(w.failure());
  co_await c.part();
}

mw::task<void> keep_talking(cluster& all, member_process& self, const world_plan& plan,
                            mw::rank_t rank) {
  auto body = [&all, &self, &plan](mw::world& w) -> mw::task<void> {
    co_await talk(all, self, plan, w);
  };
  mw::world_options options;
  options.name = mw::world_name(plan.name);
  options.rank = rank;
  options.size = static_cast<mw::rank_t>(plan.members.size());
  options.form = 20s;
  options.collective_break = 20s;
  try {
    co_await mw::keep(self.runtime(), *self.rendezvous, options, body);
  } catch (const std::exception& e) {
    all.story.complain("law 1: keep threw: " + std::string(e.what()));
  }
}

}  // namespace manyworlds_tests
