#include "simulation_machinery.hpp"

namespace manyworlds::inline v0 {

void simulation::at_step(std::uint64_t n, action what) {
  machinery_->step_actions.emplace(n, std::move(what));
}

void simulation::at(time_point when, action what) {
  machinery_->clockwork.at(when, [this, what = std::move(what)] {
    what();
    look_again();
  });
}

void simulation::after(duration delay, action what) {
  at(now() + delay, std::move(what));
}

void simulation::kill(simulated_process& p) {
  if (p.is_dead()) return;
  machinery_->clockwork.record(p.name_, "killed");
  p.state_ = process_state::killed;
  machinery_->network.close_all(p);
  for (simulated_engine* e : p.engines_) e->wake();
}

void simulation::release(simulated_process& p) {
  if (p.state_ != process_state::killed) return;
  machinery_->clockwork.record(p.name_, "released");
  p.state_ = process_state::released;
  look_again();
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
  look_again();
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
