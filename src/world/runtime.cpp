#include "manyworlds/world/runtime.hpp"

#include <pthread.h>
#include <sched.h>
#include <signal.h>

#include <algorithm>
#include <stdexcept>
#include <vector>

#include "manyworlds/observe/dump_server.hpp"
#include "manyworlds/world/runtime_core.hpp"

namespace manyworlds::inline v0 {

namespace {

using namespace std::chrono_literals;

/// For telling peers goodbye when the runtime ends.
constexpr duration goodbye_patience = 500ms;
/// For the last buffers of broken worlds to be let go.
constexpr duration drain_patience = 10s;

void name_thread(const std::string& name, int cpu) {
  pthread_setname_np(pthread_self(), name.substr(0, 15).c_str());
  if (cpu < 0) return;
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(static_cast<std::size_t>(cpu), &set);
  pthread_setaffinity_np(pthread_self(), sizeof set, &set);
}

/// Signals are the application's: the runtime's threads take none.
class signals_blocked {
 public:
  signals_blocked() {
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before_);
  }
  signals_blocked(const signals_blocked&) = delete;
  signals_blocked& operator=(const signals_blocked&) = delete;
  ~signals_blocked() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }

 private:
  sigset_t before_;
};

}  // namespace

/// The tasks of a runtime that nobody awaits, and their common end.
class runtime::roots final {
 public:
  explicit roots(reactor& home) noexcept
      : home_(home), cancel_(*this), drain_timer_(*this) {}

  void add(const std::shared_ptr<started_base>& root) {
    const std::lock_guard lock(mutex_);
    running_.push_back(root);
    root->forget_ = [this, raw = root.get()] { remove(raw); };
    // Under the lock: what is cancelled must have begun, and what ends must be listed.
    root->begin();
    // Those that were there are cancelled already; a later one must not outlast them.
    if (!deadline_ || std::exchange(cancel_.queued, true)) return;
    home_.post(cancel_);
  }

  [[nodiscard]] bool empty() const {
    const std::lock_guard lock(mutex_);
    return running_.empty();
  }

  /// From any thread. A later call with less patience counts.
  void cancel_after(duration drain) {
    {
      const std::lock_guard lock(mutex_);
      const time_point by = later(home_.now(), drain);
      deadline_ = deadline_ ? std::min(*deadline_, by) : by;
      if (std::exchange(cancel_.queued, true)) return;
    }
    home_.post(cancel_);
  }

 private:
  struct cancelling final : work {
    explicit cancelling(roots& r) noexcept
        : work([](work& w) noexcept {
            auto& self = static_cast<cancelling&>(w);
            self.owner.begin_cancelling();
          }),
          owner(r) {}
    roots& owner;
    bool queued = false;
  };
  struct drain_timer final : timer {
    explicit drain_timer(roots& r) noexcept
        : timer(
              [](timer& t) noexcept { static_cast<drain_timer&>(t).owner.cancel_all(); }),
          owner(r) {}
    roots& owner;
  };

  void begin_cancelling() noexcept {
    time_point by{};
    {
      const std::lock_guard lock(mutex_);
      cancel_.queued = false;
      by = *deadline_;
    }
    if (by <= home_.now()) {
      home_.timers().disarm(drain_timer_);
      cancel_all();
    } else {
      home_.timers().arm(drain_timer_, by);
    }
  }

  void cancel_all() noexcept {
    std::vector<std::shared_ptr<started_base>> now;
    {
      const std::lock_guard lock(mutex_);
      now = running_;
    }
    for (const auto& root : now) root->cancel();
  }

  void remove(const started_base* root) {
    // Destroyed outside the lock.
    std::shared_ptr<started_base> gone;
    const std::lock_guard lock(mutex_);
    const auto found = std::find_if(running_.begin(), running_.end(),
                                    [&](const auto& r) { return r.get() == root; });
    if (found == running_.end()) return;
    gone = std::move(*found);
    running_.erase(found);
  }

  reactor& home_;
  mutable std::mutex mutex_;
  std::vector<std::shared_ptr<started_base>> running_;
  /// When all are cancelled, once that was asked for.
  std::optional<time_point> deadline_;
  cancelling cancel_;
  drain_timer drain_timer_;
};

void started_base::reap() noexcept {
  const auto alive = shared_from_this();
  collect();
  if (forget_) forget_();
  {
    const std::lock_guard lock(mutex_);
    ended_.store(true, std::memory_order_release);
  }
  changed_.notify_all();
}

runtime::runtime(runtime_options options)
    : core_(std::make_shared<runtime_core>(options)),
      roots_(std::make_unique<roots>(core_->user())),
      service_roots_(std::make_unique<roots>(core_->service())) {
  auto root = std::make_shared<started_task<void>>(core_->service(), core_->serve());
  root->begin();
  service_root_ = root;
  launch_service();
}

runtime::~runtime() { end(); }

reactor& runtime::home() noexcept { return core_->user(); }
reactor& runtime::service() noexcept { return core_->service(); }
bool runtime::is_stopping() const noexcept { return core_->refuses_worlds(); }

void runtime::launch_service() {
  if (!core_->env().starts_threads()) return;
  const signals_blocked while_starting;
  service_thread_ = std::thread([this] {
    name_thread(core_->options().thread_name.str() + "-svc", -1);
    core_->service().run_until([this] { return service_root_->has_ended(); });
  });
}

void runtime::launch_reactor_thread() {
  if (!core_->env().starts_threads()) return;
  const std::lock_guard lock(mutex_);
  if (turning_ != turning::nobody || reactor_thread_.joinable()) return;
  turning_ = turning::a_thread;
  const signals_blocked while_starting;
  reactor_thread_ = std::thread([this] {
    name_thread(core_->options().thread_name.str(), core_->options().cpu);
    core_->user().run_until([this] { return thread_must_end_.load(); });
  });
}

void runtime::refuse_in_forked_child() const {
  if (!core_->is_forked_child()) return;
  throw world_error(
      failure(cause::forked, "a runtime cannot be used in a forked child: make another"));
}

void runtime::take_the_reactor(turning how) {
  refuse_in_forked_child();
  const std::lock_guard lock(mutex_);
  if (!core_->env().starts_threads() && how == turning::a_caller) {
    throw std::logic_error(
        "a simulated runtime is turned by its simulation: start(), not run()");
  }
  if (turning_ != turning::nobody &&
      !(how == turning_ && how == turning::a_foreign_loop)) {
    throw std::logic_error(
        "this runtime's reactor is turned by another thread already: use one of run(), "
        "start() "
        "with the runtime's own thread, or poll()");
  }
  turning_ = how;
}

void runtime::adopt(const std::shared_ptr<started_base>& root) {
  refuse_in_forked_child();
  roots_->add(root);
}

started<void> runtime::start_service(task<void> t) {
  refuse_in_forked_child();
  auto state = std::make_shared<started_task<void>>(core_->service(), std::move(t));
  service_roots_->add(state);
  return started<void>(std::move(state));
}

void runtime::turn_until_ended(started_base& root) {
  if (core_->options().cpu >= 0)
    name_thread(core_->options().thread_name.str(), core_->options().cpu);
  core_->user().run_until([&] { return root.has_ended(); });
  const std::lock_guard lock(mutex_);
  turning_ = turning::nobody;
}

void runtime::stop(duration drain) {
  core_->refuse_worlds();
  roots_->cancel_after(drain);
}

bool runtime::poll() {
  refuse_in_forked_child();
  if (turning_ != turning::a_foreign_loop) take_the_reactor(turning::a_foreign_loop);
  return core_->user().turn();
}

std::optional<duration> runtime::prepare_wait() {
  if (turning_ != turning::a_foreign_loop) take_the_reactor(turning::a_foreign_loop);
  return core_->user().prepare_wait();
}

int runtime::descriptor() { return core_->user().io().descriptor(); }

void runtime::serve_dumps() {
  if (dump_server_) return;
  dump_server_ = std::make_unique<class dump_server>(
      [this](bool as_json) { return as_json ? dump_json() : dump(); });
}

void runtime::end() noexcept {
  dump_server_ = nullptr;
  // A forked child has this object but none of its threads, and shares its kernel
  // objects: it lets go of them by ending, and must not say anything on them.
  if (core_->is_forked_child()) {
    if (reactor_thread_.joinable()) reactor_thread_.detach();
    if (service_thread_.joinable()) service_thread_.detach();
    core_->keep_for_ever();
    // Tasks wait in their frames for what never comes here, and must not be destroyed
    // meanwhile.
    new std::shared_ptr<started_base>(std::move(service_root_));
    static_cast<void>(roots_.release());
    static_cast<void>(service_roots_.release());
    return;
  }
  stop();
  std::vector<std::shared_ptr<world_core>> worlds;
  std::optional<time_point> until;
  const auto all_quiet = [&] {
    if (!roots_->empty()) return false;
    if (!until) {
      until = core_->user().now() + drain_patience;
      worlds = core_->worlds().snapshot();
      for (const auto& w : worlds) {
        w->break_with(w->describe_failure(cause::runtime_stopped, w->options().rank,
                                          operation_kind::none,
                                          "its runtime was destroyed"));
        // Closed by the others, who may not know yet that we do.
        if (w->state() == world_state::closed) w->begin_leaving();
      }
    }
    return core_->user().now() >= *until ||
           std::all_of(worlds.begin(), worlds.end(),
                       [](const auto& w) { return w->drained().is_set(); });
  };
  if (reactor_thread_.joinable()) {
    // Ends are far between and nobody is waiting for this thread: no need for a notice.
    while (!all_quiet()) std::this_thread::sleep_for(200us);
    thread_must_end_.store(true);
    core_->user().wake();
    reactor_thread_.join();
  } else if (core_->env().starts_threads()) {
    // What ends on the service thread wakes nobody here, nor does the end of our
    // patience.
    while (!all_quiet()) {
      if (!core_->user().turn()) std::this_thread::sleep_for(200us);
    }
  } else {
    // Simulated: nobody but us turns the reactors now, and time stands still.
    for (int turns = 0; !all_quiet() && turns < 100'000; ++turns) {
      core_->user().turn();
      core_->service().turn();
    }
  }

  // Hosted stores go last of what users started: worlds that were forming needed them.
  const bool threaded = core_->env().starts_threads();
  service_roots_->cancel_after(duration::zero());
  for (int turns = 0; !service_roots_->empty() && turns < 100'000; ++turns) {
    if (threaded) {
      std::this_thread::sleep_for(200us);
    } else {
      core_->service().turn();
    }
  }
  core_->end_service(threaded ? goodbye_patience : duration::zero());
  if (service_thread_.joinable()) {
    service_thread_.join();
  } else {
    for (int turns = 0; !service_root_->has_ended() && turns < 100'000; ++turns) {
      core_->service().turn();
    }
  }
  core_->note_end();
  // After that, so that what was posted since the last turn finds its world over.
  core_->user().close();
}

}  // namespace manyworlds::inline v0
