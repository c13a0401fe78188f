#include "testing/simulation_machinery.hpp"

namespace manyworlds::inline v0 {

using namespace detail;

namespace {
constexpr duration usual_notice = std::chrono::microseconds(300);
constexpr duration late_notice = std::chrono::milliseconds(20);
}  // namespace

void simulation::at_step(std::uint64_t n, action what) {
  machinery_->step_actions.emplace(n, std::move(what));
}

void simulation::at(time_point when, action what) {
  machinery_->clockwork.at(when, [this, what = std::move(what)] {
    what();
    wake_all();
  });
}

void simulation::after(duration delay, action what) {
  at(now() + delay, std::move(what));
}

void simulation::kill(simulated_process& p) {
  if (p.is_dead()) return;
  machinery_->clockwork.record(p.name_, "killed");
  p.state_ = process_state::killed;
  tell_processes_of_host(p);
  machinery_->network.close_all(p);
  for (simulated_engine* e : p.engines_) e->wake();
}

// The kernel marks the futexes of the dead before it closes their sockets. It wakes the
// waiters of these futexes about then, and they run when they get a CPU.
void simulation::tell_processes_of_host(simulated_process& dead) {
  for (simulated_resident* r : dead.residents_) r->killed();
  simulated_clockwork& clock = machinery_->clockwork;
  for (const auto& p : machinery_->processes) {
    if (p->host_ != dead.host_ || p->is_dead() || p->residents_.empty()) continue;
    const duration until_it_runs =
        clock.random.at_most(clock.random.one_in(4) ? late_notice : usual_notice);
    clock.at(clock.now + until_it_runs, [&told = *p] {
      for (simulated_resident* r : told.residents_) r->process_killed();
    });
  }
}

simulated_resident* simulation::find_resident(std::size_t host,
                                              std::string_view name) const noexcept {
  for (const auto& p : machinery_->processes) {
    if (p->host_ != host || p->is_dead()) continue;
    for (simulated_resident* r : p->residents_) {
      if (r->name() == name) return r;
    }
  }
  return nullptr;
}

void simulation::release(simulated_process& p) {
  if (p.state_ != process_state::killed) return;
  machinery_->clockwork.record(p.name_, "released");
  p.state_ = process_state::released;
  // No other process hears of it: a turn for all of them would make the end of a thousand
  // programs a million turns.
  for (const auto& r : machinery_->reactors)
    if (r->process == &p) r->awake = true;
}

void simulation::stop(simulated_process& p) {
  if (p.state_ != process_state::running) return;
  machinery_->clockwork.record(p.name_, "stopped");
  p.state_ = process_state::stopped;
}

void simulation::resume(simulated_process& p) {
  if (p.state_ != process_state::stopped) return;
  machinery_->clockwork.record(p.name_, "resumed");
  p.state_ = process_state::running;
  wake_all();
}

void simulation::block(const simulated_process& from, const simulated_process& to) {
  machinery_->clockwork.record(from.name_, "blocked",
                               static_cast<std::int64_t>(to.index_));
  machinery_->network.block(from.index_, to.index_);
}

void simulation::partition(const simulated_process& a, const simulated_process& b) {
  block(a, b);
  block(b, a);
}

void simulation::lose_link(const simulated_process& a, const simulated_process& b) {
  machinery_->clockwork.record(a.name_, "link lost", static_cast<std::int64_t>(b.index_));
  machinery_->network.lose_link(a, b);
}

void simulation::heal(const simulated_process& a, const simulated_process& b) {
  machinery_->clockwork.record(a.name_, "healed", static_cast<std::int64_t>(b.index_));
  machinery_->network.heal(a, b);
}

void simulation::cut(const simulated_process& a, const simulated_process& b) {
  machinery_->clockwork.record(a.name_, "cut", static_cast<std::int64_t>(b.index_));
  machinery_->network.cut(a, b);
}

void simulation::delay(const simulated_process& from, const simulated_process& to,
                       duration latency, duration jitter) {
  machinery_->network.delay(from.index_, to.index_, latency, jitter);
}

void simulation::slow_reader(simulated_process& p, std::size_t bytes_per_millisecond) {
  p.bytes_per_millisecond_ = bytes_per_millisecond;
  p.readable_now_ = bytes_per_millisecond;
  p.readable_since_ = now();
  for (simulated_engine* e : p.engines_) e->wake();
}

}  // namespace manyworlds::inline v0
