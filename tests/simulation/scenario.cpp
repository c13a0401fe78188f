#include "simulation/scenario.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <list>

#include "simulation/pattern.hpp"
#include "simulation/traffic.hpp"

namespace manyworlds_tests {

namespace {

/// One seed's processes, worlds and faults.
class random_scenario {
 public:
  random_scenario(std::uint64_t seed, std::size_t lines, placement where)
      : random_(mixed(seed)),
        all_(seed, network(random_, where)),
        hosts_(where == placement::together ? 1 + random_.below(3) : 0) {
    all_.lines_kept = lines;
    plan_worlds();
  }

  seed_report run();

 private:
  static mw::simulation_options network(mw::simulated_random& random, placement where);
  void plan_worlds();
  void join_all(member_process& m, std::size_t as);
  void plan_faults();
  void do_fault();
  void restart_store();
  template <class... Place>
  member_process& add(std::string name, Place&... place) {
    member_process& m = all_.add(std::move(name), place...);
    if (store_) m.use_store_of(*store_);
    return m;
  }
  /// The i-th of the first processes, on one of the hosts.
  member_process& settle(std::size_t i);
  void replace(std::size_t victim);
  void everything_forms_again();

  [[nodiscard]] member_process& any_process() {
    return *holders_[random_.below(holders_.size())];
  }
  [[nodiscard]] mw::duration any_span();

  mw::simulated_random random_;
  cluster all_;
  /// The number of hosts that all processes share; 0: each has its own.
  std::size_t hosts_;
  /// Who stands for each of the processes that the plans name: after a kill another one.
  std::vector<member_process*> holders_;
  std::vector<bool> is_vacant_;
  std::list<world_plan> plans_;
  mw::time_point healed_{};
  bool is_disturbed_ = false;
  /// Not set: all share one that cannot fail.
  member_process* store_ = nullptr;
};

constexpr mw::duration trouble = 4s;
constexpr mw::duration recovery = 40s;
constexpr mw::duration afterwards = 6s;

mw::simulation_options random_scenario::network(mw::simulated_random& random,
                                                placement where) {
  mw::simulation_options o;
  o.shared_memory = where == placement::together;
  // Who is being read stays awake for a while: time must pass meanwhile.
  if (o.shared_memory) o.longest_turn = 2us;
  if (random.one_in(3)) o.latency = random.at_most(3ms);
  if (random.one_in(3)) o.jitter = random.at_most(5ms);
  if (random.one_in(6)) o.bytes_per_second = 5'000'000 + random.below(100'000'000);
  if (random.one_in(4)) o.send_buffer = 4096 + random.below(60'000);
  if (random.one_in(4)) o.receive_window = 2048 + random.below(60'000);
  return o;
}

void random_scenario::plan_worlds() {
  const std::size_t processes = 2 + random_.below(5);
  if (random_.one_in(4)) {
    store_ = &all_.add("store");
    all_.host_store(*store_);
  }
  for (std::size_t i = 0; i < processes; ++i) holders_.push_back(&settle(i));
  is_vacant_.resize(processes);
  const std::size_t worlds =
      random_.one_in(2) ? 1 + random_.below(3) : 1 + random_.below(10);
  std::size_t streams = 0;
  for (std::size_t i = 0; i < worlds; ++i) {
    world_plan p;
    p.name = fmt::format("w{}", i);
    for (std::size_t each = 0; each < processes; ++each) p.members.push_back(each);
    for (std::size_t at = processes; at > 1; --at) {
      std::swap(p.members[at - 1], p.members[random_.below(at)]);
    }
    p.members.resize(std::min<std::size_t>(processes, 2 + random_.below(3)));
    p.uses_lane[random_.below(lane_styles)] = true;
    if (random_.one_in(2)) p.uses_lane[random_.below(lane_styles)] = true;
    if (random_.one_in(2)) p.uses_lane[random_.below(lane_styles)] = true;
    if (random_.one_in(3)) p.like_size = random_.below(100'000);
    p.collectives = random_.below(3);
    const std::size_t lanes = static_cast<std::size_t>(
        std::count(std::begin(p.uses_lane), std::end(p.uses_lane), true));
    streams += p.members.size() * (p.members.size() - 1) * lanes;
    plans_.push_back(std::move(p));
  }
  const mw::time_point begin = all_.sim.now();
  for (world_plan& p : plans_) {
    p.pause = streams * 10ms;
    p.calm = begin + trouble;
    p.quiet = begin + trouble + recovery;
  }
}

member_process& random_scenario::settle(std::size_t i) {
  const std::string name = fmt::format("p{}", i);
  if (i < hosts_ || hosts_ == 0) return add(name);
  return add(name, *holders_[random_.below(hosts_)]);
}

void random_scenario::join_all(member_process& m, std::size_t as) {
  for (const world_plan& p : plans_) {
    for (std::size_t r = 0; r < p.members.size(); ++r) {
      if (p.members[r] != as) continue;
      m.start(keep_talking(all_, m, p, static_cast<mw::rank_t>(r)));
    }
  }
}

mw::duration random_scenario::any_span() {
  return random_.one_in(2) ? random_.at_most(1s) : random_.at_most(8s);
}

void random_scenario::plan_faults() {
  const std::size_t faults = random_.below(6);
  for (std::size_t i = 0; i < faults; ++i) {
    // In a step of forming, of a transfer, or at any time.
    if (random_.one_in(2)) {
      all_.sim.at_step(1 + random_.below(3000), [this] { do_fault(); });
    } else {
      all_.sim.after(random_.at_most(trouble), [this] { do_fault(); });
    }
  }
}

void random_scenario::replace(std::size_t victim) {
  is_vacant_[victim] = false;
  member_process& before = *holders_[victim];
  const std::string name = before.name() + "'";
  member_process& after = random_.one_in(2) ? add(name, before) : add(name);
  holders_[victim] = &after;
  join_all(after, victim);
}

// It dies, and comes back later with nothing in it.
void random_scenario::restart_store() {
  if (!store_->is_alive()) return;
  all_.kill(*store_);
  all_.faults.store_was_emptied = true;
  all_.sim.after(random_.at_most(4s), [this] {
    store_ = &all_.add("store'", *store_);
    all_.host_store(*store_);
  });
}

void random_scenario::do_fault() {
  is_disturbed_ = true;
  if (store_ && random_.one_in(3)) return restart_store();
  const std::size_t at = static_cast<std::size_t>(random_.below(holders_.size()));
  member_process& victim = *holders_[at];
  member_process& other = any_process();
  switch (random_.below(12)) {
    case 0:
    case 1:
    case 2: {
      if (!victim.is_alive()) return;
      all_.kill(victim);
      is_vacant_[at] = true;
      const std::uint64_t how = random_.below(4);
      // At once: before a peer can have noticed. Or never.
      if (how == 0) replace(at);
      if (how == 1 || how == 2) {
        all_.sim.after(random_.at_most(3s), [this, at] { replace(at); });
      }
      return;
    }
    case 3:
    case 4:
      return all_.stop(victim, any_span());
    case 5:
      if (&victim != &other) all_.partition(victim, other, any_span());
      return;
    case 6:
      if (&victim != &other) all_.lose_link(victim, other, any_span());
      return;
    case 7:
      if (&victim != &other) all_.cut(victim, other);
      return;
    case 8:
      return all_.slow_down(victim, any_span());
    case 9:
      return all_.freeze(any_span());
    case 10: {
      // A second claimant of every rank that this process has.
      member_process& rival = hosts_ > 0 ? add(victim.name() + "-rival", victim)
                                         : add(victim.name() + "-rival");
      return join_all(rival, at);
    }
    default: {
      const auto plan = std::next(
          plans_.begin(), static_cast<std::ptrdiff_t>(random_.below(plans_.size())));
      return all_.fail_world(plan->name);
    }
  }
}

void random_scenario::everything_forms_again() {
  for (const world_plan& p : plans_) {
    const bool complete = std::none_of(p.members.begin(), p.members.end(),
                                       [this](std::size_t m) { return is_vacant_[m]; });
    if (complete && !all_.story.was_up_after(p.name, all_.sim.now())) {
      all_.story.complain("law 9: " + p.name + " is not up again " +
                          std::to_string(recovery / 1s) + " s after the last fault");
    }
  }
}

seed_report random_scenario::run() {
  for (std::size_t i = 0; i < holders_.size(); ++i) join_all(*holders_[i], i);
  plan_faults();
  const mw::time_point begin = all_.sim.now();
  all_.run_for(trouble + recovery - 1s - (all_.sim.now() - begin));
  everything_forms_again();
  const auto all_ended = [this] {
    return std::all_of(holders_.begin(), holders_.end(), [](member_process* m) {
      return !m->is_alive() || m->has_ended();
    });
  };
  const bool ended = all_.run_until(all_ended, 1s + afterwards);
  if (!ended && !is_disturbed_) {
    all_.story.complain("law 9: without a fault the worlds do not come to their end");
  }
  return finished(all_);
}

}  // namespace

seed_report finished(cluster& all) {
  all.close();
  seed_report report;
  report.complaints = all.story.complaints();
  if (!report.complaints.empty()) report.context = all.last_lines();
  report.operations = all.story.operations();
  report.messages = all.story.messages();
  report.worlds = all.story.worlds_formed();
  report.shared_links = all.shared_links();
  report.steps = all.sim.steps();
  report.fingerprint = all.sim.fingerprint();
  return report;
}

seed_report run_seed(std::uint64_t seed, std::size_t lines, placement where) {
  random_scenario scenario(seed, lines, where);
  return scenario.run();
}

}  // namespace manyworlds_tests
