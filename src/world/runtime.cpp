#include "manyworlds/world/runtime.hpp"

#include <pthread.h>
#include <sched.h>

#include <stdexcept>

#include "../io/signals_blocked.hpp"
#include "manyworlds/observe/dump_server.hpp"
#include "manyworlds/world/runtime_core.hpp"
#include "runtime_roots.hpp"

namespace manyworlds::inline v0 {

namespace {

void name_thread(const std::string& name, int cpu) {
  pthread_setname_np(pthread_self(), name.substr(0, 15).c_str());
  if (cpu < 0) return;
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(static_cast<std::size_t>(cpu), &set);
  pthread_setaffinity_np(pthread_self(), sizeof set, &set);
}

}  // namespace

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
turn_times runtime::turns() const noexcept { return core_->user().times(); }
reactor& runtime::service() noexcept { return core_->service(); }
const std::shared_ptr<pool_registry>& runtime::pools() const noexcept {
  return core_->pools();
}
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

}  // namespace manyworlds::inline v0
