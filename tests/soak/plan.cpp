#include "soak/plan.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "manyworlds/testing/simulation.hpp"
#include "simulation/pattern.hpp"

namespace manyworlds_tests::soak {

namespace {

// Time to start, and for all to be up again after the last fault.
constexpr mw::duration beginning = 3s;
constexpr mw::duration recovery = 25s;

/// The last two processes are left alone, and some worlds are theirs.
constexpr std::size_t calm_processes = 2;
constexpr std::size_t calm_worlds = 2;

class planner {
 public:
  explicit planner(const settings& s) : settings_(s), random_(mixed(s.seed)) {
    plan_.quiet = s.span - 2s;
    plan_.healed = std::max<mw::duration>(beginning, s.span - recovery);
  }

  plan planned() {
    for (std::size_t i = 0; i < settings_.processes; ++i) {
      // Of the first all is as it is by default.
      plan_.runtimes.push_back({i > 0 && random_.one_in(3), i == 0 || !random_.one_in(4),
                                i == 0 || !random_.one_in(4)});
    }
    for (std::size_t i = 0; i < settings_.worlds; ++i) add_world(i);
    add_faults();
    return std::move(plan_);
  }

 private:
  [[nodiscard]] std::size_t hurt_processes() const {
    return std::max<std::size_t>(settings_.processes, 2 + calm_processes) -
           calm_processes;
  }
  [[nodiscard]] mw::duration between(mw::duration least, mw::duration most) {
    return least + random_.at_most(most - least);
  }

  void add_world(std::size_t number) {
    planned_world w;
    w.is_undisturbed = number < calm_worlds && settings_.processes >= 2 + calm_processes;
    w.talk.name = fmt::format("w{}", number);
    choose_members(w);
    for (int lanes = 0; lanes < 2; ++lanes) {
      w.talk.uses_lane[random_.below(lane_styles)] = true;
    }
    if (random_.one_in(3)) w.talk.like_size = random_.below(100'000);
    // Two lanes of a pair talk as much as twelve of four members.
    w.talk.pause = between(100ms, 300ms) * w.talk.members.size();
    if (!w.is_undisturbed) {
      w.how = static_cast<repair>(random_.below(3));
      if (random_.one_in(2)) {
        for (mw::duration at = between(4s, 20s); at < plan_.healed;
             at += between(4s, 20s)) {
          w.ends.push_back(at);
        }
      }
    }
    w.ends.push_back(plan_.quiet);
    plan_.worlds.push_back(std::move(w));
  }

  void choose_members(planned_world& w) {
    auto& members = w.talk.members;
    for (std::size_t i = 0; i < settings_.processes; ++i) members.push_back(i);
    if (w.is_undisturbed) members.erase(members.begin(), members.end() - calm_processes);
    for (std::size_t left = members.size(); left > 1; --left) {
      std::swap(members[left - 1], members[random_.below(left)]);
    }
    members.resize(std::min<std::size_t>(members.size(), 2 + random_.below(3)));
  }

  void add_faults() {
    std::vector<mw::duration> well_from(settings_.processes, mw::duration(0));
    for (mw::duration at = beginning; at < plan_.healed; at += between(100ms, 1500ms)) {
      planned_fault f;
      f.at = at;
      f.slot = random_.below(hurt_processes());
      const std::uint64_t what = random_.below(8);
      f.what = what < 3 ? deed::kill : what < 6 ? deed::stop : deed::fail;
      if (f.what == deed::kill) f.span = random_.one_in(2) ? 0s : between(0s, 3s);
      if (f.what == deed::stop)
        f.span = random_.one_in(2) ? between(20ms, 3s) : between(5s, 8s);
      if (f.what == deed::fail && !choose_world(f)) continue;
      if (f.what != deed::fail && well_from[f.slot] > at) continue;
      // A successor has time to join before the next.
      if (f.what != deed::fail) well_from[f.slot] = at + f.span + 2s;
      plan_.faults.push_back(std::move(f));
    }
  }

  bool choose_world(planned_fault& f) {
    const planned_world& w = plan_.worlds[random_.below(plan_.worlds.size())];
    f.slot = w.talk.members[random_.below(w.talk.members.size())];
    f.world = w.talk.name;
    return !w.is_undisturbed;
  }

  settings settings_;
  mw::simulated_random random_;
  plan plan_;
};

}  // namespace

plan plan_of(const settings& s) { return planner(s).planned(); }

std::string text(const planned_fault& f) {
  const auto seconds = [](mw::duration d) {
    return static_cast<double>(d.count()) / 1e9;
  };
  if (f.what == deed::fail) {
    return fmt::format("{:7.3f} s  slot {} fails {}", seconds(f.at), f.slot, f.world);
  }
  return fmt::format("{:7.3f} s  slot {} is {} for {:.3f} s", seconds(f.at), f.slot,
                     f.what == deed::kill ? "killed, and gone" : "stopped",
                     seconds(f.span));
}

}  // namespace manyworlds_tests::soak
