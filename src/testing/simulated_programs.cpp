#include "testing/simulated_programs.hpp"

#include <signal.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "io/current_reactor.hpp"
#include "manyworlds/coro/shield.hpp"
#include "manyworlds/detail/assertion.hpp"

namespace manyworlds::inline v0 {

using namespace detail;

std::optional<std::string_view> simulated_program::variable(std::string_view name) const {
  for (const auto& [known, value] : variables_) {
    if (known == name) return value;
  }
  return {};
}

pid_t simulated_program::pid() const noexcept {
  return static_cast<pid_t>(process_->identity().pid);
}

void simulated_program::print(std::string_view line) {
  if (output_) output_(std::string(line) + '\n', 1);
}

void simulated_program::print_error(std::string_view line) {
  if (output_) output_(std::string(line) + '\n', 2);
}

namespace detail {

namespace {

/// How long a start and the notice of an end take.
constexpr duration start_time = std::chrono::microseconds(800);
constexpr duration notice_time = std::chrono::microseconds(100);

class simulated_started final : public hosted_process {
 public:
  simulated_started(std::shared_ptr<simulated_child> child, tree_listener* listener)
      : child_(std::move(child)), listener_(listener) {}
  ~simulated_started() override {
    if (listener_) listener_->tree_has_ended({});
  }

  [[nodiscard]] pid_t pid() const noexcept override { return child_->pid(); }
  [[nodiscard]] bool has_ended() const noexcept override { return child_->has_ended(); }
  void signal(int number) noexcept override { child_->signal(number); }
  [[nodiscard]] task<process_status> ended() override {
    co_await child_->told().wait();
    co_return child_->status();
  }
  [[nodiscard]] task<std::size_t> signal_tree(int number) override {
    const std::size_t count = child_->has_ended() ? 0 : 1;
    child_->signal(number);
    co_return count;
  }
  [[nodiscard]] task<std::size_t> signal_missed(int) override { co_return 0; }
  // When its frame is gone, so that a runtime does not end before.
  [[nodiscard]] task<bool> is_tree_empty() override { co_return child_->is_cleared(); }

 private:
  std::shared_ptr<simulated_child> child_;
  tree_listener* listener_;
};

}  // namespace

simulated_child::simulated_child(simulation& sim, simulated_clockwork& clock,
                                 reactor& starter, simulated_process& process,
                                 const process_description& what,
                                 const simulated_body& body)
    : sim_(sim), clock_(clock), starter_(starter), process_(process), make_(body) {
  self_.process_ = &process;
  self_.arguments_ = what.arguments;
  self_.output_ = what.simulated_output;
  for (const auto& change : what.changes) {
    std::erase_if(self_.variables_,
                  [&](const auto& known) { return known.first == change.first; });
    if (change.second) self_.variables_.emplace_back(change.first, *change.second);
  }
}

simulated_child::~simulated_child() {
  MW_ASSERT(!running_, "a program is cleared up before it is destroyed");
}

pid_t simulated_child::pid() const noexcept { return self_.pid(); }

void simulated_child::begin() {
  // Its starter was killed meanwhile.
  if (has_ended_) return;
  reactor_ = std::make_unique<reactor>(
      process_.make_engine(engine_kind::automatic).engine, reactor_options{.spin = {}});
  process_.attach(*reactor_);
  running_ = shared_from_this();
  body_ = run();
  const auto ended = [](void* of) noexcept {
    static_cast<simulated_child*>(of)->body_ended();
  };
  root_ = std::make_unique<task_root>(*reactor_, ended, this);
  root_->start(body_.promise());
}

task<void> simulated_child::run() {
  process_status status;
  try {
    status.code = co_await make_(self_) & 0xff;
  } catch (...) {
    status.signal = SIGABRT;
  }
  end_with(status);
}

void simulated_child::signal(int number) {
  if (has_ended_) return;
  const bool is_stopped = process_.state() == process_state::stopped;
  switch (number) {
    case SIGSTOP:
      return sim_.stop(process_);
    case SIGCONT:
      sim_.resume(process_);
      if (std::exchange(terminate_waits_, false)) signal(SIGTERM);
      return;
    case SIGKILL:
      return kill(false);
    default:
      break;
  }
  if (is_stopped) {
    terminate_waits_ = terminate_waits_ || number == SIGTERM;
    return;
  }
  if (number == SIGTERM && self_.heeds_terminate_) {
    if (!std::exchange(is_terminate_posted_, true)) reactor_->post(terminate_);
    return;
  }
  kill(false);
  status_.signal = number;
}

void simulated_child::kill(bool for_memory) {
  if (has_ended_) return;
  process_status status;
  status.signal = SIGKILL;
  status.out_of_memory = for_memory;
  end_with(status);
}

/// From here on its process is dead, as to all others. Its frame is unwound later.
void simulated_child::end_with(process_status status) {
  if (has_ended_) return;
  has_ended_ = true;
  status_ = status;
  clock_.record(process_.name(), "program ended", status.code,
                static_cast<std::uint64_t>(status.signal));
  sim_.resume(process_);
  sim_.kill(process_);
  clock_.at(clock_.now + notice_time, [self = shared_from_this()] {
    self->tell_.keep(self);
    if (!self->starter_.try_post(self->tell_)) self->tell_.let_go();
    if (!self->reactor_) return;
    self->sim_.release(self->process_);
    self->reactor_->post(self->unwind_);
  });
}

void simulated_child::unwind() noexcept {
  if (!is_unwound_ && root_->cancel()) body_ended();
}

void simulated_child::body_ended() noexcept {
  if (std::exchange(is_unwound_, true)) return;
  // Not within the body's last suspension, nor before `unwind` has run.
  clock_.at(clock_.now + 2 * notice_time,
            [self = shared_from_this()] { self->clear_up(); });
}

void simulated_child::clear_up() {
  body_.reset();
  root_.reset();
  process_.detach(*reactor_);
  reactor_.reset();
  self_.output_ = nullptr;
  make_ = nullptr;
  running_.reset();
}

void simulated_child::leave_behind() noexcept {
  if (!running_) return;
  // A frame that waits cannot be destroyed, and its reactor has its timers.
  if (is_unwound_) {
    body_.reset();
    root_.reset();
    reactor_.reset();
  } else {
    [[maybe_unused]] auto* const left = new std::shared_ptr<simulated_child>(running_);
  }
  running_.reset();
}

// --------------------------------------------------------------------------------------

simulated_programs::simulated_programs(simulation& sim, simulated_process& owner,
                                       simulated_clockwork& clock)
    : sim_(sim), owner_(owner), clock_(clock) {
  simulated_kernel::add_resident(owner_, *this);
}

simulated_programs::~simulated_programs() {
  for (const auto& each : children_) each->leave_behind();
}

/// As with a signal at the starter's end.
void simulated_programs::killed() noexcept {
  clock_.at(clock_.now, [this] {
    for (const auto& each : children_) each->kill(false);
  });
}

std::vector<pid_t> simulated_programs::running() const {
  std::vector<pid_t> found;
  for (const auto& each : children_) {
    if (!each->has_ended()) found.push_back(each->pid());
  }
  return found;
}

bool simulated_programs::has_any() const noexcept {
  return std::any_of(children_.begin(), children_.end(), [](const auto& each) {
    return !each->is_cleared() || each.use_count() > 1;
  });
}

simulated_child* simulated_programs::find(pid_t pid) const noexcept {
  for (const auto& each : children_) {
    if (!each->has_ended() && each->pid() == pid) return each.get();
  }
  return nullptr;
}

task<start_outcome> simulated_programs::start(const process_description& what,
                                              tree_listener* listener) {
  reactor* const home = current_reactor();
  MW_ASSERT(home, "programs are started by tasks of a reactor");
  std::deque<start_failure>& failures = failures_[what.program];
  if (!failures.empty()) {
    const start_failure why = failures.front();
    failures.pop_front();
    co_return why;
  }
  const auto known = bodies_.find(what.program);
  if (known == bodies_.end()) co_return start_failure{start_step::execute, ENOENT, {}};
  std::erase_if(children_,
                [](const auto& each) { return each->has_ended() && each->is_cleared(); });
  simulated_process& process =
      sim_.add_process(owner_.name() + '/' + what.program, owner_);
  auto child = std::make_shared<simulated_child>(sim_, clock_, *home, process, what,
                                                 known->second);
  children_.push_back(child);
  // What is attached to a simulation is not attached within a turn.
  event begun;
  const auto begin = [&]() -> task<void> {
    clock_.at(clock_.now + start_time, [child, &begun] {
      child->begin();
      begun.set();
    });
    co_await begun.wait();
  };
  co_await shield(begin());
  if (listener) listener->tree_begins({});
  co_return std::make_unique<simulated_started>(std::move(child), listener);
}

}  // namespace detail

}  // namespace manyworlds::inline v0
