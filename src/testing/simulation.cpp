#include "manyworlds/testing/simulation.hpp"

#include <cstdio>
#include <cstdlib>

#include <algorithm>

#include "manyworlds/detail/assertion.hpp"
#include "testing/simulation_machinery.hpp"

namespace manyworlds::inline v0 {

using namespace detail;

namespace {

// More turns than this without waiting are a loop that will never wait: from then on time
// passes as well.
constexpr std::uint64_t patience_with_loops = 10'000;

}  // namespace

simulation::simulation(std::uint64_t seed, simulation_options options)
    : machinery_(std::make_unique<machinery>(seed, options)) {}

simulation::~simulation() = default;

simulated_process& simulation::add_process(std::string name) {
  machinery& m = *machinery_;
  const std::size_t host = m.hosts++;
  m.processes.emplace_back(new simulated_process(
      *this, m.network, m.clockwork, m.processes.size(), host, std::move(name)));
  m.network.add_host(host, *m.processes.back());
  return *m.processes.back();
}

simulated_process& simulation::add_process(std::string name,
                                           const simulated_process& beside) {
  machinery& m = *machinery_;
  m.processes.emplace_back(new simulated_process(
      *this, m.network, m.clockwork, m.processes.size(), beside.host_, std::move(name)));
  return *m.processes.back();
}

time_point simulation::now() const noexcept { return machinery_->clockwork.now; }
duration simulation::elapsed() const noexcept {
  return now() - simulated_clockwork::beginning;
}
std::uint64_t simulation::steps() const noexcept { return machinery_->clockwork.steps; }
simulated_random& simulation::random() noexcept { return machinery_->test_random; }
bool simulation::is_stuck() const noexcept { return machinery_->stuck; }
std::uint64_t simulation::fingerprint() const noexcept {
  return machinery_->clockwork.fingerprint;
}
void simulation::trace_to(trace_sink sink) {
  machinery_->clockwork.sink = std::move(sink);
}

bool simulation::step() { return step_before(time_point::max()); }

void simulation::run_for(duration time) {
  wake_all();
  const time_point limit = now() + time;
  while (step_before(limit)) {}
  machinery_->clockwork.now = std::max(now(), limit);
}

bool simulation::step_before(time_point limit) {
  machinery& m = *machinery_;
  simulated_clockwork& clock = m.clockwork;
  if (clock.now > limit) return false;
  m.run_step_actions();
  machinery::choices choices = m.find_choices();
  while (choices.reactors.empty() && !choices.event) {
    const std::optional<time_point> next = m.next_instant();
    m.stuck = !next;
    if (!next) return false;
    if (*next > limit) {
      clock.now = std::max(clock.now, limit);
      return false;
    }
    clock.now = std::max(clock.now, *next);
    m.turns_at_this_instant = 0;
    choices = m.find_choices();
  }
  m.stuck = false;
  ++clock.steps;
  if (++m.turns_at_this_instant > patience_with_loops)
    clock.now += std::chrono::microseconds(1);
  clock.now += clock.random.at_most(clock.options.longest_turn);

  // A reactor may wake up without a reason, as from a real wait.
  if (!choices.sleepers.empty() && clock.random.one_in(32)) {
    choices.reactors.push_back(choices.sleepers[static_cast<std::size_t>(
        clock.random.below(choices.sleepers.size()))]);
  }
  const std::uint64_t chosen =
      clock.random.below(choices.reactors.size() + (choices.event ? 1 : 0));
  if (chosen < choices.reactors.size()) {
    turn(*choices.reactors[static_cast<std::size_t>(chosen)]);
  } else {
    clock.run_next_event();
  }
  return true;
}

void simulation::turn(driven_reactor& r) {
  machinery& m = *machinery_;
  simulated_process& p = *r.process;
  MW_ASSERT(r.may_turn(), "a reactor turns once at a time, and only in a live process");
  m.clockwork.record(p.name_, "turn");
  r.turning = true;
  r.awake = false;
  r.wakes_at.reset();
  const bool did = r.reactor->turn();
  // The turn may have detached it.
  const bool is_attached = std::any_of(m.reactors.begin(), m.reactors.end(),
                                       [&](const auto& d) { return d.get() == &r; });
  if (!is_attached) return;
  r.turning = false;
  if (did) {
    r.awake = true;
    return;
  }
  if (const std::optional<duration> sleeps_for = r.reactor->prepare_wait()) {
    r.wakes_at =
        *sleeps_for < time_point::max() - now() ? now() + *sleeps_for : time_point::max();
  }
}

void simulation::sleep(simulated_engine& sleeper, std::optional<time_point> until) {
  machinery& m = *machinery_;
  const simulated_process& p = sleeper.process_;
  while (p.state() == process_state::stopped ||
         (!sleeper.is_noticed() && (!until || now() < *until))) {
    if (step_before(until.value_or(time_point::max()))) continue;
    if (until && p.state() != process_state::stopped) {
      m.clockwork.now = std::max(now(), *until);
      return;
    }
    if (!m.stuck) continue;
    std::fprintf(stderr, "nothing can happen any longer, and %s sleeps:\n%s",
                 p.name().c_str(), describe().c_str());
    std::abort();
  }
}

void simulation::wake_all() noexcept {
  for (const auto& r : machinery_->reactors) r->awake = true;
}

void simulation::attach(simulated_process& p, reactor& r) {
  machinery_->reactors.push_back(std::make_unique<driven_reactor>(p, r));
}

void simulation::detach(reactor& r) noexcept {
  std::erase_if(machinery_->reactors, [&](const auto& d) { return d->reactor == &r; });
}

// ---------------------------------------------------------------------------------------

simulation::machinery::choices simulation::machinery::find_choices() const {
  choices found;
  for (const auto& r : reactors) {
    if (!r->may_turn()) continue;
    (r->has_work(clockwork.now) ? found.reactors : found.sleepers).push_back(r.get());
  }
  const std::optional<time_point> next = clockwork.next_event();
  found.event = next && *next <= clockwork.now;
  return found;
}

std::optional<time_point> simulation::machinery::next_instant() const {
  std::optional<time_point> next = clockwork.next_event();
  for (const auto& r : reactors) {
    if (!r->may_turn() || !r->wakes_at) continue;
    next = next ? std::min(*next, *r->wakes_at) : *r->wakes_at;
  }
  return next;
}

void simulation::machinery::run_step_actions() {
  while (!step_actions.empty() && step_actions.begin()->first <= clockwork.steps + 1) {
    const action what = std::move(step_actions.begin()->second);
    step_actions.erase(step_actions.begin());
    what();
    for (const auto& r : reactors) r->awake = true;
  }
}

}  // namespace manyworlds::inline v0
