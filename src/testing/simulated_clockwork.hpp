// Simulated clockwork: what all parts of a simulation share, which is its time, its
// chance, its coming events and its record.
#pragma once

#include <algorithm>
#include <functional>
#include <utility>
#include <vector>

#include "manyworlds/detail/assertion.hpp"
#include "manyworlds/testing/simulation.hpp"

namespace manyworlds::inline v0::detail {

class simulated_clockwork {
 public:
  // Time does not start at zero, which some code takes for "never".
  static constexpr time_point beginning{std::chrono::hours(1)};

  simulated_clockwork(std::uint64_t seed, simulation_options given)
      : options(given), random(seed) {}

  void at(time_point when, std::function<void()> what) {
    events_.push_back({when, random.next(), std::move(what)});
    std::push_heap(events_.begin(), events_.end(), later);
  }
  [[nodiscard]] std::optional<time_point> next_event() const {
    if (events_.empty()) return std::nullopt;
    return events_.front().when;
  }
  [[nodiscard]] std::size_t events_ahead() const noexcept { return events_.size(); }
  void run_next_event() {
    MW_ASSERT(!events_.empty() && events_.front().when <= now,
              "an event happens when its time has come");
    std::pop_heap(events_.begin(), events_.end(), later);
    const std::function<void()> what = std::move(events_.back().what);
    events_.pop_back();
    what();
  }

  void record(std::string_view process, std::string_view what, std::int64_t subject = 0,
              std::uint64_t amount = 0);

  simulation_options options;
  simulated_random random;
  time_point now = beginning;
  std::uint64_t steps = 0;
  std::uint64_t fingerprint = 0xcbf29ce484222325u;
  simulation::trace_sink sink;

 private:
  struct event {
    time_point when;
    std::uint64_t order;  // events of one instant come in the order of the seed
    std::function<void()> what;
  };
  static bool later(const event& a, const event& b) {
    return a.when != b.when ? a.when > b.when : a.order > b.order;
  }

  std::vector<event> events_;
};

}  // namespace manyworlds::inline v0::detail
