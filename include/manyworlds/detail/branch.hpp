// Branch: one task that an operation runs on its waiter's behalf. Combiners and adapters
// use it.
#pragma once

#include <coroutine>
#include <exception>
#include <type_traits>
#include <utility>

#include "manyworlds/coro/task.hpp"
#include "manyworlds/detail/assertion.hpp"

namespace manyworlds::inline v0::detail {

class branch;

/// An owner that is told when a branch has ended. Thread: the home's.
class branch_owner {
 public:
  /// Returns what to run next: usually the operation's waiter if this was the last
  /// branch. Called from within the branch's last suspension: its frame must not be
  /// destroyed here.
  virtual std::coroutine_handle<> branch_ended(branch& b) noexcept = 0;

 protected:
  ~branch_owner() = default;
};

/// The place of a child task. The child resumes it when it has ended.
class branch final : public continuation {
 public:
  branch() noexcept
      : continuation([](continuation& k) noexcept {
          auto& self = static_cast<branch&>(k);
          MW_ASSERT(self.is_running_, "a branch ends once (law 1)");
          self.is_running_ = false;
          return self.owner_->branch_ended(self);
        }) {}

  /// Runs the task until it first suspends or ends; in the latter case the owner has been
  /// told.
  void start(promise_base& task, branch_owner& owner, executor& home) noexcept {
    MW_ASSERT(!is_running_, "a branch runs one task at a time");
    owner_ = &owner;
    task_ = &task;
    set_home(home);
    is_running_ = true;
    task.start(*this).resume();
  }

  /// Asks the task to stop. True: it has ended as cancelled now and the owner will not be
  /// told.
  bool cancel() noexcept {
    if (!is_running_ || !task_->cancel()) return false;
    is_running_ = false;
    return true;
  }

  [[nodiscard]] bool is_running() const noexcept { return is_running_; }
  /// Returns true if the task was started, and gave a value or threw.
  [[nodiscard]] bool has_result() const noexcept {
    if (!task_) return false;
    return task_->outcome() == task_outcome::returned || threw();
  }
  [[nodiscard]] bool threw() const noexcept {
    MW_ASSERT(task_, "only a branch that was started has an outcome");
    return task_->outcome() == task_outcome::threw;
  }

  [[nodiscard]] const std::exception_ptr& error() const noexcept {
    MW_ASSERT(task_, "only a branch that was started has an error");
    return task_->error();
  }

 private:
  branch_owner* owner_ = nullptr;
  promise_base* task_ = nullptr;
  bool is_running_ = false;
};

/// Makes a task that awaits `awaitable`. An rvalue is kept by value, an lvalue by
/// reference.
template <class Awaitable>
task<await_result_t<Awaitable>> await_in_task(Awaitable awaitable) {
  co_return co_await std::forward<Awaitable>(awaitable);
}

template <class T>
struct is_task : std::false_type {};
template <class T>
struct is_task<task<T>> : std::true_type {};

/// Returns any awaitable as a task; a task stays as it is.
template <class Awaitable>
auto as_task(Awaitable&& awaitable) {
  if constexpr (!is_awaitable<Awaitable>) {
    refuse_to_await<Awaitable>();
    return task<refused_result<Awaitable>>();
  } else if constexpr (is_task<Awaitable>::value) {
    return task(std::move(awaitable));
  } else {
    return await_in_task<Awaitable>(std::forward<Awaitable>(awaitable));
  }
}

template <class Awaitable>
using task_for = decltype(as_task(std::declval<Awaitable>()));

}  // namespace manyworlds::inline v0::detail
