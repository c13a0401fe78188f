// One world that is formed while things go wrong: a kill, a pause or a rival at each
// step, members that cannot reach each other.
#include <fmt/format.h>

#include <list>

#include "manyworlds/world/outcome.hpp"
#include "simulation/pattern.hpp"
#include "simulation/scenario.hpp"
#include "simulation/traffic.hpp"

namespace manyworlds_tests {

namespace {

class forming_scenario {
 public:
  forming_scenario(std::uint64_t seed, std::size_t lines, placement where)
      : all_(seed, network(seed, where)), seed_(seed), where_(where) {
    all_.lines_kept = lines;
  }
  seed_report run();

 private:
  enum class trouble : std::uint64_t {
    kill,
    kill_and_replace,
    pause,
    rival,
    apart,
    amnesia,
    idle,
    kinds
  };

  static trouble kind_of(std::uint64_t seed) {
    return static_cast<trouble>(seed % static_cast<std::uint64_t>(trouble::kinds));
  }
  static mw::simulation_options network(std::uint64_t seed, placement where) {
    mw::simulation_options o;
    o.shared_memory = where == placement::together;
    if (o.shared_memory) o.longest_turn = 2us;
    // Goodbyes and greetings cross.
    if (kind_of(seed) == trouble::idle) o.latency = 8ms;
    return o;
  }
  /// On a host of its own, or on that of the first.
  member_process& settle(std::string name) {
    const bool is_alone = where_ == placement::apart || all_.size() == 0;
    return is_alone ? all_.add(std::move(name)) : all_.add(std::move(name), all_.at(0));
  }
  void plan(world_plan& p, std::string name);
  void join(std::size_t member);
  mw::task<void> claim_in_vain(member_process& m);
  void begin_trouble();
  void at_the_step();

  cluster all_;
  std::uint64_t seed_;
  placement where_;
  world_plan forming_;
  world_plan beside_;
  std::size_t victim_ = 0;
  trouble kind_ = trouble::kill;
};

// Longer than any forming without trouble takes.
constexpr std::uint64_t steps_of_forming = 500;
constexpr mw::duration apart_for = 9s;

void forming_scenario::plan(world_plan& p, std::string name) {
  p.name = std::move(name);
  p.uses_lane[0] = true;
  p.pause = 250ms;
  p.calm = all_.sim.now();
  p.quiet = all_.sim.now() + 30s;
}

mw::task<void> forming_scenario::claim_in_vain(member_process& m) {
  mw::world_options options;
  options.name = mw::world_name(forming_.name);
  options.rank = static_cast<mw::rank_t>(victim_);
  options.size = static_cast<mw::rank_t>(forming_.members.size());
  options.form = 8s;
  mw::world w(m.runtime(), *m.rendezvous, options);
  const auto r = co_await mw::outcome(w);
  if (r) {
    all_.story.complain("formation: two living processes had one rank");
  } else if (r.error().cause != mw::cause::rank_taken) {
    all_.story.complain("formation: a rank is held, and who claims it is told: " +
                        r.error().text());
  }
}

void forming_scenario::at_the_step() {
  member_process& victim = all_.at(victim_);
  switch (kind_) {
    case trouble::kill:
      return all_.kill(victim);
    case trouble::kill_and_replace: {
      all_.kill(victim);
      member_process& after =
          (seed_ / 14) % 2 == 0 ? all_.add("successor", victim) : all_.add("successor");
      return after.start(
          keep_talking(all_, after, forming_, static_cast<mw::rank_t>(victim_)));
    }
    case trouble::pause:
      return all_.stop(victim, all_.sim.random().at_most(8s));
    default:
      return;
  }
}

void forming_scenario::begin_trouble() {
  if (kind_ == trouble::apart) {
    member_process& other = all_.at((victim_ + 1) % forming_.members.size());
    return all_.partition(all_.at(victim_), other, apart_for);
  }
  if (kind_ == trouble::idle) return;
  if (kind_ == trouble::amnesia) {
    // Rank 0 comes back on a store that is empty: the others know the epoch.
    return all_.sim.after(1s, [this] {
      all_.kill(all_.at(0));
      all_.empty_store();
      member_process& after = settle("successor");
      after.start(keep_talking(all_, after, forming_, 0));
    });
  }
  if (kind_ == trouble::rival) {
    // Once the world is up no member may be pushed out of it.
    return all_.sim.after(1s, [this] {
      member_process& rival = settle("rival");
      rival.start(claim_in_vain(rival));
    });
  }
  all_.sim.at_step(all_.sim.steps() + 1 + seed_ / 7 % steps_of_forming,
                   [this] { at_the_step(); });
}

// When the links have been idle for as long as they are kept, more or less.
void forming_scenario::join(std::size_t member) {
  auto start = [this, member] {
    member_process& m = all_.at(member);
    m.start(keep_talking(all_, m, forming_, static_cast<mw::rank_t>(member)));
  };
  if (kind_ != trouble::idle) return start();
  all_.sim.after(5200ms + all_.sim.random().at_most(150ms), start);
}

seed_report forming_scenario::run() {
  const std::size_t size = 2 + static_cast<std::size_t>(mixed(seed_) % 3);
  victim_ = static_cast<std::size_t>(mixed(seed_ + 1) % size);
  kind_ = kind_of(seed_);
  plan(forming_, "forming");
  plan(beside_, "beside");
  for (std::size_t i = 0; i < size; ++i) {
    settle(fmt::format("p{}", i));
    forming_.members.push_back(i);
    if (kind_ == trouble::idle || i != victim_) beside_.members.push_back(i);
  }
  if (kind_ == trouble::idle) beside_.quiet = all_.sim.now() + 200ms;
  for (std::size_t i = 0; i < size; ++i) join(i);
  for (std::size_t r = 0; beside_.members.size() > 1 && r < beside_.members.size(); ++r) {
    member_process& m = all_.at(beside_.members[r]);
    m.start(keep_talking(all_, m, beside_, static_cast<mw::rank_t>(r)));
  }
  begin_trouble();
  all_.run_for(29s);
  const mw::time_point now = all_.sim.now();
  if (kind_ != trouble::kill && !all_.story.was_up_after(forming_.name, now)) {
    all_.story.complain("law 9: it is not up 20 s after the trouble");
  }
  const bool is_apart = kind_ == trouble::apart && all_.at(victim_).is_alive();
  if (size > 2 && !is_apart && kind_ != trouble::idle &&
      !all_.story.was_up_after(beside_.name, now)) {
    all_.story.complain("law 2: the world beside it is not up");
  }
  all_.run_for(5s);
  return finished(all_);
}

}  // namespace

seed_report run_forming_seed(std::uint64_t seed, std::size_t lines, placement where) {
  forming_scenario scenario(seed, lines, where);
  return scenario.run();
}

}  // namespace manyworlds_tests
