// Running a job's task: exit code, error file, signals.
#include <fmt/format.h>
#include <pthread.h>
#include <signal.h>
#include <time.h>
#include <unistd.h>

#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>

#include "exception_text.hpp"
#include "launch/agent_reporter.hpp"
#include "manyworlds/coro/giving_up.hpp"
#include "manyworlds/coro/when_any.hpp"
#include "manyworlds/detail/assertion.hpp"
#include "manyworlds/io/signals.hpp"
#include "manyworlds/launch/launch_context.hpp"

namespace manyworlds::inline v0 {

namespace {

/// One write a line: those of several processes on one terminal stay whole.
void say(const launch_context& job, std::string_view what) {
  const std::string line = fmt::format("manyworlds[{}]: {}: {}\n", ::getpid(), job.text(),
                                       what.substr(0, what.find('\n')));
  [[maybe_unused]] const auto written = ::write(STDERR_FILENO, line.data(), line.size());
}

/// Gives the calling thread its signal mask back.
class signal_mask_kept {
 public:
  signal_mask_kept() noexcept { pthread_sigmask(SIG_SETMASK, nullptr, &before_); }
  signal_mask_kept(const signal_mask_kept&) = delete;
  signal_mask_kept& operator=(const signal_mask_kept&) = delete;
  ~signal_mask_kept() {
    if (takes_pending_) take_pending();
    pthread_sigmask(SIG_SETMASK, &before_, nullptr);
  }
  /// Further signals that have come by then say nothing new: they must not end a process
  /// that ends with a code of its own.
  void will_take_pending() noexcept { takes_pending_ = true; }

 private:
  static void take_pending() noexcept {
    sigset_t awaited;
    sigemptyset(&awaited);
    sigaddset(&awaited, SIGTERM);
    sigaddset(&awaited, SIGINT);
    const timespec at_once{};
    // Each of the two is pending once at most.
    for (int i = 0; i < 2; ++i) sigtimedwait(&awaited, nullptr, &at_once);
  }

  sigset_t before_;
  bool takes_pending_ = false;
};

/// Blocks the signals, and gives the wait for them; nothing where that would not do.
std::optional<task<received_signal>> awaited_signals(const launch_context& job) {
  try {
    return until_signal({SIGTERM, SIGINT});
  } catch (const std::exception& e) {
    say(job,
        fmt::format("SIGTERM and SIGINT end this process at once, since {}", e.what()));
    return std::nullopt;
  }
}

/// Reports to the agent, if there is one, while a job runs.
class reporting_kept {
 public:
  reporting_kept(std::shared_ptr<detail::agent_reporter> to, runtime& rt)
      : to_(std::move(to)) {
    if (to_) to_->attach(rt);
  }
  reporting_kept(const reporting_kept&) = delete;
  reporting_kept& operator=(const reporting_kept&) = delete;
  ~reporting_kept() {
    if (to_) to_->detach();
  }

 private:
  const std::shared_ptr<detail::agent_reporter> to_;
};

task<int> and_then_zero(task<void> work) {
  co_await std::move(work);
  co_return 0;
}

task<void> stop_at_signals(runtime& rt, task<received_signal> first, duration drain,
                           int& came) {
  const received_signal signal = co_await std::move(first);
  came = signal.number;
  if (drain <= duration::zero()) co_return;
  rt.stop(drain);
  co_await until_signal({SIGTERM, SIGINT});
}

task<int> until_end_or_signal(runtime& rt, task<int> work,
                              std::optional<task<received_signal>> signals,
                              duration drain, int& came) {
  if (!signals) co_return co_await std::move(work);
  task<void> watch = stop_at_signals(rt, std::move(*signals), drain, came);
  const auto ended = co_await when_any(std::move(work), std::move(watch));
  if (const auto& code = std::get<0>(ended)) co_return *code;
  throw stopped();
}

}  // namespace

int launch_context::run(class runtime& rt, task<void> work, job_options options) const {
  return run(rt, and_then_zero(std::move(work)), options);
}

int launch_context::run(class runtime& rt, task<int> work, job_options options) const {
  signal_mask_kept mask;
  auto signals = awaited_signals(*this);
  int came = 0;
  std::exception_ptr error;
  int code = options.code_of_error;
  try {
    const reporting_kept reports(agent, rt);
    code = rt.run(until_end_or_signal(rt, std::move(work), std::move(signals),
                                      options.drain, came));
  } catch (...) {
    error = std::current_exception();
  }
  MW_ASSERT(came == 0 || came == SIGTERM || came == SIGINT, "no other signal is awaited");
  if (came == 0 && !error && code == 0) return 0;
  // The others need not be waited for: a launcher tells them.
  rt.stop();
  if (came != 0) {
    mask.will_take_pending();
    return options.code_of_signal < 0 ? 128 + came : options.code_of_signal;
  }
  if (!error) return code;
  say(*this, detail::exception_text(error));
  if (!record_error(error, options.code_of_error))
    say(*this, fmt::format("the error file {} cannot be written", error_file));
  return options.code_of_error;
}

}  // namespace manyworlds::inline v0
