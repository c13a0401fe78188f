#include "world/runtime_roots.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <exception>
#include <utility>

#include "exception_text.hpp"
#include "manyworlds/coro/giving_up.hpp"
#include "manyworlds/detail/assertion.hpp"
#include "world/runtime_core.hpp"

namespace manyworlds::inline v0 {

using namespace detail;

namespace {

using namespace std::chrono_literals;

/// The starter of a task has this long to ask how it ended, before it is logged.
constexpr duration asking_patience = 1s;

/// Returns whether the error was caused by the runtime that stops, not by the task.
bool comes_of_stopping(const std::exception_ptr& error, const runtime_core& core) {
  if (!core.refuses_worlds()) return false;
  try {
    std::rethrow_exception(error);
  } catch (const world_error& e) {
    return e.cause() == cause::runtime_stopped;
  } catch (const stopped&) {
    return true;
  } catch (...) {
    return false;
  }
}

}  // namespace

void runtime::roots::add(const std::shared_ptr<started_base>& root) {
  const std::lock_guard lock(mutex_);
  MW_ASSERT(!root->has_ended() && !root->forget_, "a task is added once, before its end");
  running_.push_back(root);
  root->forget_ = [this, raw = root.get()] { ended(*raw); };
  root->lost_ = [this](const started_base& task) { log_error(task); };
  // Under the lock: a task that is cancelled must have begun, and one that ends must be
  // listed.
  root->begin();
  // Earlier tasks are cancelled already; a later one must not outlast them.
  if (!deadline_ || std::exchange(is_cancelling_queued_, true)) return;
  home_.post(cancelling_);
}

bool runtime::roots::empty() const {
  const std::lock_guard lock(mutex_);
  return running_.empty();
}

void runtime::roots::cancel_after(duration drain) {
  {
    const std::lock_guard lock(mutex_);
    const time_point by = later(home_.now(), drain);
    deadline_ = deadline_ ? std::min(*deadline_, by) : by;
    if (std::exchange(is_cancelling_queued_, true)) return;
  }
  home_.post(cancelling_);
}

void runtime::roots::begin_cancelling() noexcept {
  MW_ASSERT(home_.is_current(), "tasks are cancelled on their home");
  time_point by{};
  {
    const std::lock_guard lock(mutex_);
    MW_ASSERT(is_cancelling_queued_ && deadline_,
              "a cancelling was queued with its deadline");
    is_cancelling_queued_ = false;
    by = *deadline_;
  }
  if (by <= home_.now()) {
    home_.timers().disarm(drain_timer_);
    cancel_all();
  } else {
    home_.timers().arm(drain_timer_, by);
  }
}

void runtime::roots::cancel_all() noexcept {
  // A collective that a task of ours has entered cannot be taken back. Its world
  // breaks; otherwise the others would learn of our end when the collective is overdue.
  home_.note_last_cancelling();
  std::vector<std::shared_ptr<started_base>> now;
  {
    const std::lock_guard lock(mutex_);
    now = running_;
  }
  for (const auto& root : now) root->cancel();
  if (&home_ != &core_.user()) return;
  // A collective in which a task was cancelled before is not asked again: break its
  // world.
  for (const auto& w : core_.worlds().snapshot()) w->break_for_cancelled_collectives();
}

void runtime::roots::ended(started_base& root) noexcept {
  MW_ASSERT(home_.is_current(), "a task ends on its home");
  // Destroyed outside the lock.
  std::shared_ptr<started_base> gone;
  const std::lock_guard lock(mutex_);
  const auto found = std::find_if(running_.begin(), running_.end(),
                                  [&](const auto& r) { return r.get() == &root; });
  if (found == running_.end()) return;
  gone = std::move(*found);
  running_.erase(found);
  if (root.error_ && !root.is_taken_) note_failed(root, gone);
}

void runtime::roots::note_failed(started_base& root,
                                 std::shared_ptr<started_base> untold) {
  MW_ASSERT(failed_.size() <= most_failed, "few failed tasks are remembered (law 9)");
  if (failed_.size() == most_failed) failed_.pop_front();
  failed_.push_back({root.where(), exception_text(root.error_), home_.now()});
  untold_.push_back(std::move(untold));
  if (std::exchange(is_tell_timer_armed_, true)) return;
  home_.timers().arm(tell_timer_, later(home_.now(), asking_patience));
}

void runtime::roots::tell_of(started_base& root) noexcept {
  root.lost_ = [this](const started_base& task) { log_error(task); };
  root.is_let_go_ = true;
}

void runtime::roots::tell_errors() noexcept {
  std::vector<std::shared_ptr<started_base>> untold;
  {
    const std::lock_guard lock(mutex_);
    untold.swap(untold_);
    if (std::exchange(is_tell_timer_armed_, false)) home_.timers().disarm(tell_timer_);
  }
  for (const auto& root : untold) root->tell_error();
}

void runtime::roots::log_error(const started_base& root) const noexcept {
  const log_level level =
      comes_of_stopping(root.error_, core_) ? log_level::info : log_level::error;
  core_.log(level, fmt::format(
                       "the task started at {}:{} ended by an exception that nothing has "
                       "asked for: {}",
                       root.where().file_name(), root.where().line(),
                       exception_text(root.error_)));
}

void runtime::roots::report(runtime_report& to) const {
  const time_point now = home_.now();
  const std::lock_guard lock(mutex_);
  for (const auto& root : running_) {
    to.tasks.push_back(
        {root->where().file_name(), root->where().line(), now - root->started_at(), {}});
  }
  for (const failed_task& t : failed_) {
    to.failed_tasks.push_back(
        {t.where.file_name(), t.where.line(), now - t.when, t.error});
  }
}

std::string runtime::roots::describe() const {
  const std::lock_guard lock(mutex_);
  if (running_.empty()) return {};
  std::string text = fmt::format("{} task{} started at", running_.size(),
                                 running_.size() == 1 ? "" : "s");
  for (const auto& root : running_) {
    fmt::format_to(std::back_inserter(text), "{} {}:{}",
                   root == running_.front() ? "" : ",", root->where().file_name(),
                   root->where().line());
  }
  return text;
}

void runtime::roots::leave_behind() noexcept {
  std::vector<std::shared_ptr<started_base>> running;
  {
    const std::lock_guard lock(mutex_);
    running = running_;
  }
  for (const auto& root : running) root->leave_behind();
}

// --------------------------------------------------------------------------------------

void started_base::reap() noexcept {
  MW_ASSERT(ending_, "a task that is reaped has told its end");
  const auto alive = shared_from_this();
  // A task that was left behind by a runtime that is gone may still end.
  if (is_settled_.exchange(true)) return;
  collect();
  if (is_let_go_) tell_error();
  if (forget_) forget_();
  {
    const std::lock_guard lock(mutex_);
    ended_.store(true, std::memory_order_release);
  }
  changed_.notify_all();
}

void started_base::let_go() noexcept {
  is_let_go_ = true;
  // A task that ends right now is logged a second later.
  if (has_ended() && error_) tell_error();
}

void started_base::tell_error() noexcept {
  const std::lock_guard lock(mutex_);
  const auto tell = std::exchange(lost_, nullptr);
  if (tell && error_ && !is_taken_) tell(*this);
}

void started_base::leave_behind() noexcept {
  // Its thread may return from it at this very moment.
  if (is_settled_.exchange(true)) return;
  {
    const std::lock_guard lock(mutex_);
    lost_ = nullptr;
    error_ = std::make_exception_ptr(world_error(failure(
        cause::runtime_stopped, "the task's runtime was destroyed while it ran")));
    ended_.store(true, std::memory_order_release);
  }
  changed_.notify_all();
}

}  // namespace manyworlds::inline v0
