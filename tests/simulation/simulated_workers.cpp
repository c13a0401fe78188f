#include "simulation/simulated_workers.hpp"

#include <fmt/format.h>

#include <utility>

#include "exception_text.hpp"
#include "manyworlds/coro/within.hpp"
#include "spmd/worker_loop.hpp"

namespace manyworlds_tests {

namespace {

/// What `worker_main` does in a process of its own.
mw::task<void> work(cluster& all, std::shared_ptr<simulated_worker> self,
                    const mw::function_table& functions, mw::worker_seat seat,
                    std::function<void(std::string)> has_ended) {
  std::string how = "exited with code 0";
  try {
    mw::worker_loop loop(self->process->runtime(), *self->process->rendezvous, functions,
                         std::move(seat));
    co_await loop.run();
  } catch (...) {
    how = "exited with code 1: " + mw::handled_exception_text();
  }
  if (!all.faults.closing) has_ended(std::move(how));
}

}  // namespace

simulated_workers::~simulated_workers() {
  for (const auto& [id, w] : workers_) w->is_unwanted = true;
}

std::shared_ptr<simulated_worker> simulated_workers::find(int worker) const noexcept {
  const auto at = workers_.find(worker);
  return at == workers_.end() ? nullptr : at->second;
}

std::int64_t simulated_workers::pid(int worker) const noexcept {
  const auto w = find(worker);
  return w && w->process ? w->process->process().identity().pid : 0;
}

mw::task<void> simulated_workers::start(int worker, std::uint64_t incarnation) {
  auto w = std::make_shared<simulated_worker>();
  w->id = worker;
  w->incarnation = incarnation;
  workers_[worker] = w;
  auto launched = [](simulated_workers& self,
                     const std::shared_ptr<simulated_worker>& made) {
    // The session may have ended, and this with it.
    if (made->is_unwanted) {
      made->told.set();
    } else {
      self.launch(made);
    }
  };
  const mw::duration takes = all_.sim.random().at_most(3ms);
  all_.sim.after(takes, [this, w, launched] { launched(*this, w); });
  co_return;
}

void simulated_workers::launch(const std::shared_ptr<simulated_worker>& w) {
  if (all_.faults.closing) return;
  std::string name = fmt::format("worker{}.{}", w->id, w->incarnation);
  member_process& controller = all_.at(0);
  w->process = where_ == placement::together ? &all_.add(std::move(name), controller)
                                             : &all_.add(std::move(name));
  if (controller.rendezvous != &all_.shared_store) w->process->use_store_of(controller);
  mw::worker_seat seat{session_, w->id, count_, w->incarnation, limits_};
  auto has_ended = [&all = all_, w](std::string how) {
    // Its runtime ends first.
    all.sim.after(1ms, [&all, w, how] {
      if (!w->is_there()) return;
      all.sim.kill(w->process->process());
      reap(all, w, how);
    });
  };
  w->process->start(work(all_, w, functions_, std::move(seat), has_ended));
}

void simulated_workers::kill(cluster& all, const std::shared_ptr<simulated_worker>& w) {
  if (!w->is_there()) return;
  all.kill(*w->process);
  reap(all, w, "killed by SIGKILL");
}

void simulated_workers::reap(cluster& all, const std::shared_ptr<simulated_worker>& w,
                             std::string how) {
  w->how = std::move(how);
  // Once in a while its worlds' ends are noticed long before.
  const mw::duration takes =
      all.sim.random().at_most(all.sim.random().one_in(6) ? 300ms : 2ms);
  all.sim.after(takes, [w] { w->told.set(); });
}

mw::task<std::string> simulated_workers::ended(int worker) {
  const auto w = find(worker);
  if (!w) co_return std::string();
  co_await w->told.wait();
  co_return w->how;
}

mw::task<void> simulated_workers::end(int worker, mw::duration patience) {
  const auto w = find(worker);
  if (!w) co_return;
  w->is_unwanted = true;
  auto gone = [](std::shared_ptr<simulated_worker> of) -> mw::task<void> {
    co_await of->told.wait();
  };
  try {
    co_await mw::within(gone(w), patience);
  } catch (const mw::timed_out&) {
    // By force, below.
  }
  kill(all_, w);
  if (w->process != nullptr) co_await w->told.wait();
  if (find(worker) == w) workers_.erase(worker);
}

}  // namespace manyworlds_tests
