// How a runtime ends: its tasks, then its worlds, then its service.
#include <algorithm>
#include <vector>

#include "../io/forked_thread.hpp"
#include "manyworlds/observe/dump_server.hpp"
#include "manyworlds/world/runtime.hpp"
#include "manyworlds/world/runtime_core.hpp"
#include "runtime_roots.hpp"

namespace manyworlds::inline v0 {

namespace {

using namespace std::chrono_literals;

/// For telling peers goodbye when the runtime ends.
constexpr duration goodbye_patience = 500ms;
/// For the last buffers of broken worlds to be let go.
constexpr duration drain_patience = 10s;
/// For stores that were hosted here to end their connections.
constexpr duration store_patience = 20s;
/// Where time stands still, as in a simulation that nobody drives any more, the end of
/// patience is counted.
constexpr int most_turns_without_time = 100'000;
/// Ends are far between and nobody waits for this thread: no need for a notice.
constexpr duration look_again = 200us;

}  // namespace

template <class Over>
void runtime::turn_until(const std::vector<reactor*>& ours, Over&& over) noexcept {
  const bool time_passes = core_->env().starts_threads();
  for (int turns = 0; !over() && (time_passes || turns < most_turns_without_time);
       ++turns) {
    bool did = false;
    for (reactor* r : ours) did |= r->turn();
    if (!did && time_passes) std::this_thread::sleep_for(look_again);
  }
}

void runtime::end() noexcept {
  dump_server_ = nullptr;
  // A forked child has this object but none of its threads, and shares its kernel
  // objects: it lets go of them by ending, and must not say anything on them.
  if (core_->is_forked_child()) {
    forget_forked_thread(reactor_thread_);
    forget_forked_thread(service_thread_);
    core_->keep_for_ever();
    // Tasks wait in their frames for what never comes here, and must not be destroyed
    // meanwhile.
    new std::shared_ptr<started_base>(std::move(service_root_));
    static_cast<void>(roots_.release());
    static_cast<void>(service_roots_.release());
    return;
  }
  stop();
  const bool threaded = core_->env().starts_threads();
  reactor& user = core_->user();
  reactor& service = core_->service();
  // Without a thread of its own the reactor is ours to turn, and in a simulation, where
  // nobody else turns any now, so is the service's.
  using turned = std::vector<reactor*>;
  const turned ours = reactor_thread_.joinable() ? turned{}
                      : threaded                 ? turned{&user}
                                                 : turned{&user, &service};
  const turned services = threaded ? turned{} : turned{&service};

  // Tasks of other runtimes may be shrinking worlds of this one.
  turn_until(ours, [this] { return roots_->empty() && !core_->is_shrinking(); });
  const auto worlds = core_->worlds().snapshot();
  for (const auto& w : worlds) {
    w->break_with(w->describe_failure(cause::runtime_stopped, w->options().rank,
                                      operation_kind::none, "its runtime was destroyed"));
    // Closed by the others, who may not know yet that we do.
    if (w->state() == world_state::closed) w->begin_leaving();
  }
  const time_point drained_by = user.now() + drain_patience;
  turn_until(ours, [&] {
    const bool drained = std::all_of(worlds.begin(), worlds.end(),
                                     [](const auto& w) { return w->drained().is_set(); });
    return (drained && !user.has_loose_requests()) || user.now() >= drained_by;
  });
  if (reactor_thread_.joinable()) {
    thread_must_end_.store(true);
    user.wake();
    reactor_thread_.join();
  }

  // Hosted stores go last of what users started: worlds that were forming needed them.
  service_roots_->cancel_after(duration::zero());
  const time_point stores_end_by = service.now() + store_patience;
  turn_until(services,
             [&] { return service_roots_->empty() || service.now() >= stores_end_by; });
  core_->end_service(threaded ? goodbye_patience : duration::zero());
  if (service_thread_.joinable()) {
    service_thread_.join();
  } else {
    turn_until(services, [this] { return service_root_->has_ended(); });
  }
  core_->end_devices();
  core_->note_end();
  // After that, so that what was posted since the last turn finds its world over.
  user.close();
}

}  // namespace manyworlds::inline v0
