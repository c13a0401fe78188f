// One world that is shrunk again and again while its members die, stop, are cut off from
// each other or do not call.
#pragma once

#include <map>
#include <optional>
#include <vector>

#include "simulation/pattern.hpp"
#include "simulation/scenario.hpp"
#include "simulation/world_cluster.hpp"

namespace manyworlds_tests {

class shrinking_scenario {
 public:
  shrinking_scenario(std::uint64_t seed, std::size_t lines, placement where)
      : all_(seed, network(where)), seed_(seed), where_(where) {
    all_.lines_kept = lines;
  }
  seed_report run();

 private:
  enum class trouble : std::uint64_t {
    kill,
    stop,
    hang,
    apart,
    cut,
    absent,
    fail,
    bridge,   ///< two sides that only one member reaches, from some step on
    give_up,  ///< one call of `shrink()` is given up at some time, and made again
    late,     ///< one does not call; a link drops as the others go on without it
    leave     ///< a runtime is stopped
  };

  /// What one process knows of the world it is in.
  struct place {
    std::uint64_t id = 0;  ///< 0 unless it is up
    std::uint64_t epoch = 0;
    bool is_expelled = false;
    bool is_over = false;  ///< its runtime is stopped
  };

  static mw::simulation_options network(placement where) {
    mw::simulation_options o;
    o.shared_memory = where == placement::together;
    return o;
  }
  mw::task<void> survive(std::size_t self);
  mw::task<mw::world> shrunk(std::size_t self, mw::world& from);
  mw::task<mw::world> shrunk_in_time(mw::world& from, mw::duration limit);
  void note_formed(std::size_t self, const mw::world& w);
  void check_successor(const mw::world& before, const mw::world& after);
  void begin_trouble();
  void wait_for_the_step();
  /// The next that is neither the first nor the second.
  [[nodiscard]] std::size_t after_both(std::size_t i) const {
    do i = (i + 1) % size_;
    while (i == first_ || i == second_);
    return i;
  }
  void at_the_step();
  void set_apart(std::optional<std::size_t> bridge);
  void check_the_end();
  [[nodiscard]] std::size_t chosen(std::uint64_t by, std::size_t among) const {
    return static_cast<std::size_t>(mixed(seed_ * 8 + by) % among);
  }

  cluster all_;
  std::uint64_t seed_;
  placement where_;
  std::size_t size_ = 0;
  std::vector<place> places_;
  std::map<std::uint64_t, std::uint64_t> ids_;  ///< by epoch
  trouble kind_ = trouble::kill;
  std::size_t first_ = 0;
  std::size_t second_ = 0;
  std::size_t third_ = 0;
  std::size_t fourth_ = 0;
  bool over_ = false;
};

}  // namespace manyworlds_tests
