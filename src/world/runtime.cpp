#include "manyworlds/world/runtime.hpp"

#include <pthread.h>
#include <sched.h>

#include <stdexcept>
#include <utility>

#include "manyworlds/detail/assertion.hpp"
#include "observe/dump_server.hpp"
#include "observe/report.hpp"
#include "world/runtime_core.hpp"
#include "world/runtime_roots.hpp"
#include "world/runtime_thread.hpp"

namespace manyworlds::inline v0 {

using namespace detail;

namespace {

void name_thread(const std::string& name, int cpu) {
  pthread_setname_np(pthread_self(), name.substr(0, 15).c_str());
  if (cpu < 0) return;
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(static_cast<std::size_t>(cpu), &set);
  pthread_setaffinity_np(pthread_self(), sizeof set, &set);
}

// A forked child cannot ask: mutexes that another thread held at the fork stay locked.
constexpr const char* forked_text =
    "this is a forked child: the runtime lives in its parent, ask that process\n";
constexpr const char* forked_json =
    "{\"error\": \"forked: the runtime lives in the parent process\"}\n";

}  // namespace

runtime::runtime(runtime_options options)
    : core_(std::make_shared<runtime_core>(options)),
      roots_(std::make_unique<roots>(*core_, core_->user())),
      service_roots_(std::make_unique<roots>(*core_, core_->service())) {
  auto root = std::make_shared<started_task<void>>(core_->service(), core_->serve(),
                                                   source_position());
  service_roots_->tell_of(*root);
  root->begin();
  service_root_ = root;
  launch_service();
}

runtime::~runtime() { end(); }

executor& runtime::home() noexcept { return core_->user(); }
std::string_view runtime::engine() const noexcept { return core_->user().io().name(); }
turn_times runtime::turns() const noexcept { return core_->user().times(); }
turn_times runtime::service_turns() const noexcept { return core_->service().times(); }
executor& runtime::service() noexcept { return core_->service(); }
const std::shared_ptr<pool_registry>& runtime::pools() const noexcept {
  return core_->pools();
}
bool runtime::is_stopping() const noexcept { return core_->refuses_worlds(); }
std::stop_token runtime::draining() const noexcept { return core_->draining(); }

void runtime::launch_service() {
  if (!core_->env().starts_threads()) return;
  MW_ASSERT(!service_thread_, "a runtime has one service thread");
  service_thread_ = own_thread::launch(core_, [](own_thread& self) {
    name_thread(self.core->options().thread_name.str() + "-svc", -1);
    self.core->service().run_until([&] { return self.must_end.load(); });
  });
}

void runtime::launch_reactor_thread() {
  if (!core_->env().starts_threads()) return;
  const std::lock_guard lock(mutex_);
  if (turning_ != turning::not_turned || reactor_thread_) return;
  core_->user().take(next_poller::another_thread);
  reactor_thread_ = own_thread::launch(core_, [](own_thread& self) {
    name_thread(self.core->options().thread_name.str(), self.core->options().cpu);
    self.core->user().run_until([&] { return self.must_end.load(); });
  });
  turning_ = turning::a_thread;
}

void runtime::refuse_in_forked_child() const {
  if (!core_->is_forked_child()) return;
  throw world_error(
      failure(cause::forked, "a runtime cannot be used in a forked child: make another"));
}

const char* runtime::why_taken() const noexcept {
  if (core_->user().is_current()) {
    return "run() or poll() was called inside a task of the same runtime, and this "
           "thread turns its reactor already: co_await the task instead, or start() it";
  }
  switch (turning_.load()) {
    case turning::a_thread:
      return "this runtime's reactor is turned by the runtime's own thread, since "
             "start() came first: start(task).get() instead of run(task), or run() "
             "before "
             "start()";
    case turning::a_foreign_loop:
      return "this runtime's reactor is turned by a foreign loop, since poll() or "
             "prepare_wait() came first: start(task) instead of run(task)";
    default:
      return "this runtime's reactor is turned by run() in another thread: start(task) "
             "from here instead of run(task) or poll()";
  }
}

void runtime::take_the_reactor(turning how) {
  refuse_in_forked_child();
  const std::lock_guard lock(mutex_);
  if (!core_->env().starts_threads() && how == turning::a_caller) {
    throw std::logic_error(
        "a simulated runtime is turned by its simulation: start(), not run()");
  }
  if (turning_ != turning::not_turned &&
      !(how == turning_ && how == turning::a_foreign_loop)) {
    throw std::logic_error(why_taken());
  }
  if (turning_ == turning::not_turned) core_->user().take(next_poller::this_thread);
  turning_ = how;
}

void runtime::adopt(const std::shared_ptr<started_base>& root) {
  refuse_in_forked_child();
  roots_->add(root);
}

started<void> runtime::start_service(task<void> t, source_position where) {
  refuse_in_forked_child();
  auto state =
      std::make_shared<started_task<void>>(core_->service(), std::move(t), where);
  started<void> handle(state);
  service_roots_->add(state);
  return handle;
}

void runtime::turn_until_ended(const std::shared_ptr<started_base>& root) {
  struct given_back {
    explicit given_back(runtime& r) noexcept : taken(r) {}
    given_back(const given_back&) = delete;
    given_back& operator=(const given_back&) = delete;
    ~given_back() {
      // A forked child shares the ring with its parent, which uses it.
      if (!taken.core_->is_forked_child()) taken.core_->user().release();
      const std::lock_guard lock(taken.mutex_);
      MW_ASSERT(taken.turning_ == turning::a_caller,
                "the caller gives back what it took");
      taken.turning_ = turning::not_turned;
    }
    runtime& taken;
  } const when_over(*this);
  adopt(root);
  if (core_->options().cpu >= 0)
    name_thread(core_->options().thread_name.str(), core_->options().cpu);
  core_->user().run_until([&] { return root->has_ended(); });
}

void runtime::stop(duration drain) {
  core_->refuse_worlds();
  roots_->cancel_after(drain);
}

bool runtime::poll() {
  refuse_in_forked_child();
  if (turning_ != turning::a_foreign_loop) take_the_reactor(turning::a_foreign_loop);
  // What goes straight on from a poller would come to that poller again.
  if (core_->user().is_current())
    throw std::logic_error("runtime::poll: a turn runs already; a task awaits instead");
  return core_->user().turn();
}

std::optional<duration> runtime::prepare_wait() {
  refuse_in_forked_child();
  if (turning_ != turning::a_foreign_loop) take_the_reactor(turning::a_foreign_loop);
  // It asks the pollers, too.
  if (core_->user().is_current())
    throw std::logic_error("runtime::prepare_wait: a turn runs; a task awaits instead");
  return core_->user().prepare_wait();
}

int runtime::descriptor() { return core_->user().io().descriptor(); }

runtime_report runtime::report() const {
  runtime_report all = core_->reports().report();
  roots_->report(all);
  service_roots_->report(all);
  return all;
}

std::string runtime::dump() const {
  if (core_->is_forked_child()) return forked_text;
  return text_of(report());
}

std::string runtime::dump_json() const {
  if (core_->is_forked_child()) return forked_json;
  return json_of(report());
}

void runtime::serve_dumps() {
  if (dump_server_) return;
  dump_server_ = std::make_unique<class dump_server>(
      [this](bool as_json) { return as_json ? dump_json() : dump(); });
}

}  // namespace manyworlds::inline v0
