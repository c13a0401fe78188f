#include "launch/process_core.hpp"

#include <errno.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <stdexcept>
#include <system_error>
#include <utility>

#include "duration_text.hpp"
#include "exception_text.hpp"
#include "launch/guard_connection.hpp"
#include "manyworlds/coro/shield.hpp"
#include "manyworlds/coro/within.hpp"
#include "manyworlds/detail/assertion.hpp"

namespace manyworlds::inline v0::detail {

namespace {

using namespace std::chrono_literals;

/// How long processes may outlive SIGKILL: some hang in the kernel.
constexpr duration longest_after_kill = 30s;
/// The longest pause between two looks whether a tree is empty.
constexpr duration longest_look = 50ms;
/// How long the end of a program waits for its last lines to be taken.
constexpr duration longest_drain = 1s;

process_host& host_of(runtime_core& core) {
  process_host* const host = core.env().processes();
  if (!host) {
    throw std::logic_error(
        "supervised_process: the environment of this runtime starts no programs");
  }
  return *host;
}

bool is_open(int descriptor) noexcept { return ::fcntl(descriptor, F_GETFD) >= 0; }

task<void> pump(std::shared_ptr<output_pump> one) { co_await one->run(); }

}  // namespace

process_core::process_core(runtime& rt, process_plan plan, source_position where)
    : runtime_(rt),
      core_(access::core(rt)),
      home_(core_.user()),
      host_(host_of(core_)),
      plan_(std::move(plan)),
      where_(where),
      budget_(plan_.policy) {
  settled_.set();
}

void process_core::begin() {
  if (has_begun_) return;
  (void)runtime_.start(hold(shared_from_this()), where_);
  has_begun_ = true;
}

task<void> process_core::started() {
  begin();
  co_await started_.wait();
  if (starts_ > 0) co_return;
  MW_ASSERT(end_, "what has not been started has a reason");
  throw process_error(*end_);
}

task<exit_reason> process_core::ended() {
  begin();
  co_await over_.wait();
  MW_ASSERT(end_, "what is over has a reason");
  co_return *end_;
}

task<void> process_core::stop(duration patience) {
  ask(later(home_.now(), std::max(patience, duration::zero())));
  // It was never started, and will not be.
  if (!has_begun_) begin();
  co_await gone_.wait();
  if (is_left_) {
    throw process_error(
        *end_, fmt::format("of \"{}\" processes are left {} after SIGKILL: they hang in "
                           "the kernel, or belong to another user",
                           plan_.what.program, duration_text(longest_after_kill)));
  }
}

bool process_core::leave_descendants() noexcept {
  // Once it was asked to stop, a task ends the tree.
  if (!over_.is_set() || asked_.is_set()) return false;
  process_.reset();
  return true;
}

void process_core::abandon() noexcept {
  // At once: what a function refers to may be gone before the reactor's next turn.
  functions_gone_.request_stop();
  abandoned_.keep(shared_from_this());
  if (!home_.try_execute(abandoned_)) abandoned_.let_go();
}

void process_core::ask(time_point kill_at) noexcept {
  kill_at_ = std::min(kill_at_, kill_at);
  asked_.set();
  changed_.set();
}

// ---------------------------------------------------------------------------- its life

task<void> process_core::hold(std::shared_ptr<process_core> self) {
  co_await shield(self->run());
}

task<void> process_core::run() {
  const auto body = [this](scope& s) -> task<void> {
    s.spawn(obey());
    co_await live(s);
    co_await gone_.wait();
    // What has escaped from the tree may hold a pipe.
    for (const auto& each : pumps_) each->close();
  };
  try {
    co_await scope::run(body);
  } catch (...) {
    give_up(handled_exception_text());
  }
}

/// Lets no task wait for what is no longer watched, as without memory.
void process_core::give_up(const std::string& why) noexcept {
  core_.log(log_level::error, why);
  if (!end_) end_.emplace();
  is_left_ = process_ != nullptr;
  for (event* each : {&started_, &settled_, &changed_, &asked_, &over_, &gone_})
    each->set();
}

void process_core::be_abandoned() noexcept {
  for (const auto& each : pumps_) each->close();
  ask(home_.now());
}

task<void> process_core::live(scope& s) {
  for (;;) {
    end_ = co_await run_once(s);
    started_.set();
    std::optional<duration> wait;
    if (!asked_.is_set() && starts_ > 0) wait = budget_.next(*end_, home_.now());
    tell(*end_, wait);
    if (!wait) break;
    if (process_) co_await kill_tree();
    try {
      co_await within(asked_.wait(), *wait + core_.jitter(*wait / 2));
      break;
    } catch (const timed_out&) {}
  }
  over_.set();
}

task<exit_reason> process_core::run_once(scope& s) {
  if (asked_.is_set()) {
    exit_reason never;
    never.kind = exit_kind::stopped;
    never.program = plan_.what.program;
    co_return never;
  }
  settled_.reset();
  process_.reset();
  process_description what = plan_.what;
  std::vector<unique_descriptor> given;
  start_outcome outcome;
  try {
    connect_output(what, given);
    outcome = co_await host_.start(what, plan_.guard);
  } catch (const std::system_error& e) {
    // Its text begins with the path.
    const std::string text = e.what();
    outcome = start_failure{start_step::output, e.code().value(),
                            text.substr(0, text.find(": " + e.code().message()))};
  }
  given.clear();
  if (const std::string line = host_.take_notice(); !line.empty())
    core_.log(log_level::info, line);
  if (const auto* why = std::get_if<start_failure>(&outcome)) {
    settled_.set();
    for (const auto& each : pumps_) each->close();
    pumps_.clear();
    co_return failed_start(*why);
  }
  process_ = std::move(std::get<std::unique_ptr<hosted_process>>(outcome));
  ++starts_;
  started_at_ = home_.now();
  for (const auto& each : pumps_) s.spawn(pump(each));
  core_.log(log_level::info,
            fmt::format("started \"{}\" (pid {})", plan_.what.program, process_->pid()));
  settled_.set();
  started_.set();
  co_return co_await await_end();
}

task<exit_reason> process_core::await_end() {
  exit_reason why;
  why.program = plan_.what.program;
  why.pid = process_->pid();
  const process_status status = co_await process_->ended();
  why.ran_for = home_.now() - started_at_;
  why.code = status.code;
  why.signal = status.signal;
  why.core_dumped = status.core_dumped;
  why.stop = stop_step_;
  if (status.reaped_elsewhere) {
    why.kind = exit_kind::reaped_elsewhere;
  } else if (stop_step_ != stop_step::none) {
    why.kind = exit_kind::stopped;
  } else if (status.out_of_memory) {
    why.kind = exit_kind::out_of_memory;
  } else {
    why.kind = status.signal != 0 ? exit_kind::signaled : exit_kind::exited;
  }
  changed_.set();
  const time_point until = home_.now() + longest_drain;
  for (const auto& each : pumps_) {
    each->note_end();
    try {
      co_await within(each->drained().wait(), std::max(until - home_.now(), duration{}));
    } catch (const timed_out&) {}
  }
  co_return why;
}

exit_reason process_core::failed_start(const start_failure& why) const {
  exit_reason r;
  r.kind = exit_kind::not_started;
  r.program = plan_.what.program;
  r.step = why.step;
  r.error = why.error;
  r.object = why.object;
  return r;
}

void process_core::tell(const exit_reason& why, std::optional<duration> wait) {
  const bool is_well = why.is_success() || why.kind == exit_kind::stopped;
  const std::string next =
      wait ? fmt::format("; it is started again in {}", duration_text(*wait))
           : budget_.why_not();
  core_.log(is_well ? log_level::info : log_level::warning, why.text() + next);
  if (!plan_.told || functions_gone_.stop_requested()) return;
  try {
    plan_.told({why, std::max<std::uint64_t>(starts_, 1), wait});
  } catch (...) {
    core_.log(
        log_level::error,
        fmt::format("the function that is told of the ends of \"{}\" has thrown: {}",
                    why.program, handled_exception_text()));
  }
}

// ------------------------------------------------------------------------------ its end

task<void> process_core::obey() {
  co_await asked_.wait();
  co_await settled_.wait();
  if (process_) co_await end_tree();
  // What outlives SIGKILL is still watched, and no longer waited for.
  if (is_left_) gone_.set();
  co_await over_.wait();
  process_.reset();
  gone_.set();
}

void process_core::note_signal(stop_step step) noexcept {
  if (!process_->has_ended()) stop_step_ = step;
}

task<void> process_core::end_tree() {
  if (home_.now() < kill_at_) {
    note_signal(stop_step::asked);
    co_await process_->signal_tree(SIGTERM);
    bool looks_again = true;
    for (duration look = 1ms; home_.now() < kill_at_;
         look = std::min(2 * look, longest_look)) {
      if (co_await process_->is_tree_empty()) co_return;
      co_await pause(std::min(look, kill_at_ - home_.now()));
      if (looks_again) co_await process_->signal_missed(SIGTERM);
      looks_again = false;
    }
  }
  note_signal(stop_step::killed);
  const bool is_empty = co_await kill_tree();
  is_left_ = !is_empty;
}

/// Gives false if some of it is left.
task<bool> process_core::kill_tree() {
  const time_point until = home_.now() + longest_after_kill;
  for (duration look = 1ms;; look = std::min(2 * look, longest_look)) {
    if (co_await process_->is_tree_empty()) co_return true;
    if (home_.now() >= until) co_return false;
    co_await process_->signal_tree(SIGKILL);
    co_await pause(look);
  }
}

/// Waits until something has changed.
task<void> process_core::pause(duration longest) {
  changed_.reset();
  try {
    co_await within(changed_.wait(), longest);
  } catch (const timed_out&) {}
}

// --------------------------------------------------------------------------- its output

void process_core::connect_output(process_description& what,
                                  std::vector<unique_descriptor>& given) {
  pumps_.clear();
  if (host_.passes_descriptors()) {
    if (plan_.inherits_input && is_open(STDIN_FILENO)) {
      what.descriptors.push_back({STDIN_FILENO, STDIN_FILENO});
    } else {
      given.emplace_back(::open("/dev/null", O_RDONLY | O_CLOEXEC), "/dev/null");
      what.descriptors.push_back({given.back().get(), STDIN_FILENO});
    }
  }
  if (!plan_.errors)
    return connect(plan_.output, {STDOUT_FILENO, STDERR_FILENO}, what, given);
  connect(plan_.output, {STDOUT_FILENO}, what, given);
  connect(*plan_.errors, {STDERR_FILENO}, what, given);
}

void process_core::connect(const process_output& to, std::vector<int> numbers,
                           process_description& what,
                           std::vector<unique_descriptor>& given) {
  const bool has_lines = to.longest_line() > 0;
  const std::size_t parts = to.files().size() + (to.inherits() ? 1 : 0);
  const bool is_first = starts_ == 0;
  if (!has_lines && parts == 1 && to.inherits()) {
    // Output and errors may go to different places.
    for (const int number : numbers) {
      if (is_open(number)) what.descriptors.push_back({number, number});
    }
    return;
  }
  if (!has_lines && parts == 1) {
    const process_output::file& file = to.files().front();
    what.files.push_back(
        {file.path, is_first && file.mode == file_mode::truncate, std::move(numbers)});
    return;
  }
  if (!has_lines && parts == 0) {
    given.emplace_back(::open("/dev/null", O_WRONLY | O_CLOEXEC), "/dev/null");
    for (const int number : numbers)
      what.descriptors.push_back({given.back().get(), number});
    return;
  }
  const auto log = [this](const std::string& line) {
    core_.log(log_level::warning,
              fmt::format("the output of \"{}\": {}", plan_.what.program, line));
  };
  auto one = std::make_shared<output_pump>(home_, to, is_first, numbers.front(), log,
                                           functions_gone_.get_token());
  if (host_.passes_descriptors()) {
    given.push_back(one->open_pipe());
    for (const int number : numbers)
      what.descriptors.push_back({given.back().get(), number});
  } else {
    const auto next = std::move(what.simulated_output);
    what.simulated_output = [next, numbers, one](std::string_view written, int number) {
      if (std::find(numbers.begin(), numbers.end(), number) != numbers.end()) {
        one->add_simulated(written);
      } else if (next) {
        next(written, number);
      }
    };
  }
  pumps_.push_back(std::move(one));
}

}  // namespace manyworlds::inline v0::detail
