#include "simulation/traffic.hpp"

#include "manyworlds/serve/keep.hpp"
#include "simulation/conversation.hpp"
#include "simulation/registration.hpp"

namespace manyworlds_tests {

namespace {
// Simulated processes are numbered by their pids.
constexpr std::int64_t first_pid = 100;
}  // namespace

mw::task<void> talk(cluster& all, member_process& self, const world_plan& plan,
                    mw::world& w) {
  const talk_site site{
      all.story,
      all.memory,
      all.sim.random(),
      [&all] { return all.sim.now(); },
      self.index(),
      [](std::int64_t pid) { return static_cast<std::size_t>(pid - first_pid); }};
  conversation c(site, plan, w);
  all.watch(w);
  const registration found(self.worlds, plan.name, w);
  co_await c.hold(c.take_part());
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
