// Member: one process of a soak, in all worlds that its slot has.
#pragma once

#include <map>
#include <string>

#include "manyworlds/coro/scope.hpp"
#include "manyworlds/store/tcp_store.hpp"
#include "manyworlds/world/runtime.hpp"
#include "manyworlds/world/world.hpp"
#include "simulation/talk_site.hpp"
#include "soak/plan.hpp"
#include "soak/records.hpp"

namespace manyworlds_tests::soak {

struct member_settings {
  settings of;
  std::size_t slot = 0;
  /// The how many-eth process of its slot.
  std::size_t life = 0;
  mw::time_point begin{};
  std::string store;
  std::string records;
};

/// Ends when all worlds were left at the end of the plan.
class member {
 public:
  member(const member_settings& s, record_writer& story);
  member(const member&) = delete;
  member& operator=(const member&) = delete;
  void run();

 private:
  [[nodiscard]] mw::task<void> attend_all();
  [[nodiscard]] mw::task<void> attend(const planned_world& p, mw::rank_t rank);
  [[nodiscard]] mw::task<void> keep(const planned_world& p, mw::world_options options);
  [[nodiscard]] mw::task<void> mend(const planned_world& p, mw::world_options options);
  /// Forms it, uses it and leaves it; gives what failed.
  [[nodiscard]] mw::task<mw::failure> live(const planned_world& p, mw::world& w);
  [[nodiscard]] mw::task<void> talk(const planned_world& p, mw::world& w);
  /// The next epoch, or no world.
  [[nodiscard]] mw::task<mw::world> mended(const planned_world& p, mw::world& w,
                                           const mw::failure& f);
  [[nodiscard]] mw::task<void> fail_when_planned(const planned_fault& f);
  [[nodiscard]] mw::task<void> watch();
  [[nodiscard]] mw::task<void> tell_if_late();
  [[nodiscard]] mw::task<void> nothing_is_left(std::size_t descriptors);

  [[nodiscard]] mw::time_point at(mw::duration since) const {
    return settings_.begin + since;
  }
  [[nodiscard]] bool is_over() const { return site_.now() >= at(plan_.quiet); }
  [[nodiscard]] mw::time_point end_of(const planned_world& p, const mw::world& w) const;

  member_settings settings_;
  plan plan_;
  record_writer& story_;
  mw::simulated_random random_;
  watched_memory memory_;
  talk_site site_;
  mw::runtime runtime_;
  mw::tcp_store store_;
  /// Those that are up, by name.
  std::map<std::string, mw::world*> worlds_;
};

/// Checks too that nothing of the member is left. Gives the process's exit status.
int run_member(const member_settings& s);

}  // namespace manyworlds_tests::soak
