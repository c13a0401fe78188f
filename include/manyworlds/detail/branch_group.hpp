// Branch group: several tasks that one awaiter runs side by side, with a rule for which
// end cancels the others. It implements `when_all` and `when_any`.
#pragma once

#include <array>
#include <cstddef>
#include <exception>
#include <span>
#include <tuple>
#include <utility>
#include <vector>

#include "manyworlds/detail/assertion.hpp"
#include "manyworlds/detail/branch.hpp"

namespace manyworlds::inline v0::detail {

/// Says which end of one branch cancels the others.
enum class branch_rule : unsigned char { wait_for_all, wait_for_any };

class branch_group : public native_only, private branch_owner {
 public:
  explicit branch_group(branch_rule rule) noexcept : rule_(rule) {}
  branch_group(const branch_group&) = delete;
  branch_group& operator=(const branch_group&) = delete;

  /// Starts all branches in order. Returns false if all have ended already.
  bool start(std::span<branch> branches, std::span<promise_base* const> tasks,
             continuation& waiter) noexcept {
    MW_ASSERT(branches.size() == tasks.size(), "each branch runs one task");
    branches_ = branches;
    waiter_ = &waiter;
    running_ = branches.size();
    is_busy_ = true;
    for (std::size_t i = 0; i < branches.size(); ++i) {
      if (is_cancelling_) {
        --running_;
      } else {
        branches[i].start(*tasks[i], *this, waiter.home());
      }
    }
    is_busy_ = false;
    return running_ > 0;
  }

  /// Cancels all branches. True: all have ended now, and there is nothing to deliver.
  bool cancel() noexcept {
    cancel_rest();
    // During a start or another cancellation, the function that is under way reports the
    // end.
    if (is_busy_ || running_ > 0) return false;
    if (!must_resume()) return true;
    waiter_->resume();
    return false;
  }

  [[nodiscard]] bool must_resume() const noexcept {
    if (values_ > 0 && rule_ == branch_rule::wait_for_any) return true;
    return error_ || values_ == branches_.size();
  }

  /// Throws the first error, unless there is a value that must not be lost.
  void rethrow() {
    if (values_ > 0 && rule_ == branch_rule::wait_for_any) return;
    if (error_) std::rethrow_exception(std::exchange(error_, nullptr));
  }

 protected:
  ~branch_group() = default;

 private:
  void cancel_rest() noexcept {
    if (std::exchange(is_cancelling_, true)) return;
    const bool was_busy = std::exchange(is_busy_, true);
    for (branch& b : branches_) {
      if (!b.cancel()) continue;
      MW_ASSERT(running_ > 0, "only a branch that runs can be cancelled");
      --running_;
    }
    is_busy_ = was_busy;
  }

  std::coroutine_handle<> branch_ended(branch& b) noexcept override {
    MW_ASSERT(running_ > 0, "each branch of a group ends once (law 1)");
    --running_;
    const bool gave_value = b.has_result() && !b.threw();
    if (gave_value) ++values_;
    MW_ASSERT(values_ <= branches_.size() - running_,
              "only a branch that has ended gives a value");
    if (b.threw() && !error_) error_ = b.error();
    if (!gave_value || rule_ == branch_rule::wait_for_any) cancel_rest();
    if (running_ > 0 || is_busy_) return std::noop_coroutine();
    return waiter_->take();
  }

  std::span<branch> branches_;
  continuation* waiter_ = nullptr;
  std::size_t running_ = 0;
  std::size_t values_ = 0;
  std::exception_ptr error_;
  branch_rule rule_;
  bool is_busy_ = false;
  bool is_cancelling_ = false;
};

/// Takes what a task gave, in the form that a tuple can hold.
template <class T>
storable<T> take_storable(task<T>& t) {
  if constexpr (std::is_void_v<T>) {
    t.promise().take_result();
    return {};
  } else if constexpr (std::is_lvalue_reference_v<T>) {
    return std::ref(t.promise().take_result());
  } else {
    return t.promise().take_result();
  }
}

/// The part of an awaiter that runs a fixed number of tasks of any types.
template <class... T>
class tuple_branches : public branch_group {
 public:
  tuple_branches(branch_rule rule, std::tuple<task<T>...>&& tasks) noexcept
      : branch_group(rule), tasks_(std::move(tasks)) {}

  bool await_ready() const noexcept { return false; }
  bool await_start(continuation& k) {
    const auto promises = std::apply(
        [](auto&... t) {
          return std::array<promise_base*, sizeof...(T)>{&t.promise()...};
        },
        tasks_);
    return start(branches_, promises, k);
  }
  bool await_cancel() noexcept { return cancel(); }
  bool await_must_resume() const noexcept { return must_resume(); }

 protected:
  ~tuple_branches() = default;

  /// Returns the tasks, or throws. Their frames live as long as the returned tuple.
  std::tuple<task<T>...> take_tasks() {
    std::tuple<task<T>...> tasks = std::move(tasks_);
    rethrow();
    return tasks;
  }

 private:
  std::tuple<task<T>...> tasks_;
  std::array<branch, sizeof...(T)> branches_;
};

/// The part of an awaiter that runs any number of tasks of one type.
template <class T>
class range_branches : public branch_group {
 public:
  range_branches(branch_rule rule, std::vector<task<T>>&& tasks)
      : branch_group(rule), tasks_(std::move(tasks)), branches_(tasks_.size()) {}

  bool await_ready() const noexcept { return false; }
  bool await_start(continuation& k) {
    std::vector<promise_base*> promises;
    promises.reserve(tasks_.size());
    for (task<T>& t : tasks_) promises.push_back(&t.promise());
    return start(branches_, promises, k);
  }
  bool await_cancel() noexcept { return cancel(); }
  bool await_must_resume() const noexcept { return must_resume(); }

 protected:
  ~range_branches() = default;

  std::vector<task<T>> take_tasks() {
    std::vector<task<T>> tasks = std::move(tasks_);
    rethrow();
    return tasks;
  }

 private:
  std::vector<task<T>> tasks_;
  std::vector<branch> branches_;
};

}  // namespace manyworlds::inline v0::detail
