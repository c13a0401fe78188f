// Words that are lost or late: a store that is gone between question and answer, and a
// cause that comes behind the end of a connection.
#include <fmt/format.h>

#include <vector>

#include "manyworlds/coro/sleep.hpp"
#include "manyworlds/world/outcome.hpp"
#include "simulation/pattern.hpp"
#include "simulation/scenario.hpp"
#include "simulation/world_cluster.hpp"

namespace manyworlds_tests {

namespace {

/// What one member's world came to.
struct course {
  mw::failure formed_with;
  bool is_up = false;
  mw::failure broken_by;
};

mw::world_options options_of(mw::rank_t rank, mw::rank_t size) {
  mw::world_options options;
  options.name = "words";
  options.rank = rank;
  options.size = size;
  options.form = 15s;
  return options;
}

/// Once, with no `keep` that would try again.
mw::task<void> form_once(member_process& self, mw::world_options options, course& told) {
  mw::world w(self.runtime(), *self.rendezvous, options);
  told.formed_with = (co_await mw::outcome(w)).error();
  told.is_up = !told.formed_with;
  if (told.is_up) told.broken_by = co_await w.broken();
}

mw::task<void> form_and_fail(member_process& self, mw::world_options options,
                             course& told, const bool& may_fail) {
  mw::world w(self.runtime(), *self.rendezvous, options);
  told.formed_with = (co_await mw::outcome(w)).error();
  told.is_up = !told.formed_with;
  if (!told.is_up) co_return;
  while (!may_fail) co_await mw::sleep_for(1ms);
  // Long, so that a slow connection takes a while for it.
  w.fail(std::string(3500, 'x'));
  told.broken_by = co_await w.broken();
}

bool all_are_up(const std::vector<course>& all) {
  for (const course& each : all) {
    if (!each.is_up) return false;
  }
  return true;
}

// Until all are up, a store that hosts the rendezvous takes more steps than this.
constexpr std::uint64_t steps_with_store = 900;

}  // namespace

seed_report run_lost_store_seed(std::uint64_t seed, std::size_t lines, placement where) {
  mw::simulation_options network;
  network.shared_memory = where == placement::together;
  cluster all(seed, network);
  all.lines_kept = lines;
  member_process* store = &all.add("store");
  all.host_store(*store);
  const std::size_t size = 2 + mixed(seed) % 2;
  std::vector<course> told(size);
  for (std::size_t i = 0; i < size; ++i) {
    member_process& m = all.add(fmt::format("p{}", i));
    m.use_store_of(*store);
    m.start(form_once(
        m, options_of(static_cast<mw::rank_t>(i), static_cast<mw::rank_t>(size)),
        told[i]));
  }
  // It is back at once, and empty.
  const auto restart = [&] {
    all.kill(*store);
    all.faults.store_was_emptied = true;
    store = &all.add("store again", *store);
    all.host_store(*store);
  };
  const std::uint64_t first = 1 + mixed(seed + 1) % steps_with_store;
  all.sim.at_step(all.sim.steps() + first, restart);
  if (seed % 3 == 0) {
    all.sim.at_step(all.sim.steps() + first + 1 + mixed(seed + 2) % 200, restart);
  }
  (void)all.run_until([&] { return all_are_up(told); }, 20s);
  for (std::size_t i = 0; i < size; ++i) {
    if (told[i].is_up) continue;
    all.story.complain(
        fmt::format("the store was back at once, and rank {} is not up: {}", i,
                    told[i].formed_with.text()));
  }
  return finished(all);
}

seed_report run_late_words_seed(std::uint64_t seed, std::size_t lines, placement where) {
  mw::simulation_options network;
  network.shared_memory = where == placement::together;
  // Of each connection: the cause takes up to a second, the end of another one nothing.
  network.bytes_per_second = 3'500 + mixed(seed) % 60'000;
  cluster all(seed, network);
  all.lines_kept = lines;
  const std::size_t size = 2 + mixed(seed + 1) % 3;
  const std::size_t failing = mixed(seed + 2) % size;
  std::vector<course> told(size);
  bool may_fail = false;
  for (std::size_t i = 0; i < size; ++i) {
    member_process& m = all.add(fmt::format("p{}", i));
    const mw::world_options options =
        options_of(static_cast<mw::rank_t>(i), static_cast<mw::rank_t>(size));
    m.start(i == failing ? form_and_fail(m, options, told[i], may_fail)
                         : form_once(m, options, told[i]));
  }
  if (!all.run_until([&] { return all_are_up(told); }, 15s)) {
    all.story.complain("the world is not formed");
  }
  may_fail = true;
  const auto all_are_broken = [&] {
    for (const course& each : told) {
      if (!each.broken_by) return false;
    }
    return true;
  };
  if (!all.run_until(all_are_broken, 10s)) {
    all.story.complain("law 9: not all members hear that the world has failed");
  }
  for (std::size_t i = 0; i < size; ++i) {
    if (told[i].broken_by.cause == mw::cause::broken_by_user) continue;
    all.story.complain(
        fmt::format("law 3: a member has failed the world, and rank {} gives as its "
                    "cause: {}",
                    i, told[i].broken_by.text()));
  }
  return finished(all);
}

}  // namespace manyworlds_tests
