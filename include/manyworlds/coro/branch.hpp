// Branch: one task that an operation runs on its waiter's behalf. For combiners and
// adapters.
#pragma once

#include <coroutine>
#include <exception>
#include <type_traits>
#include <utility>

#include "manyworlds/coro/task.hpp"

namespace manyworlds::inline v0 {

class branch;

/// Is told when a branch has ended, on the home's thread.
class branch_owner {
 public:
  /// What to run next: usually the operation's waiter if this was the last. Called from
  /// within the branch's last suspension: its frame must not be destroyed here.
  virtual std::coroutine_handle<> branch_ended(branch& b) noexcept = 0;

 protected:
  ~branch_owner() = default;
};

/// The place of a child task: what the child resumes when it has ended.
class branch final : public continuation {
 public:
  branch() noexcept
      : continuation([](continuation& k) noexcept {
          auto& self = static_cast<branch&>(k);
          self.is_running_ = false;
          return self.owner_->branch_ended(self);
        }) {}

  /// Runs the task until it first suspends or ends; in the latter case the owner has been
  /// told.
  void start(promise_base& task, branch_owner& owner, executor& home) noexcept {
    owner_ = &owner;
    task_ = &task;
    set_home(home);
    is_running_ = true;
    task.start(*this).resume();
  }

  /// True: it has ended as cancelled now and the owner will not be told.
  bool cancel() noexcept {
    if (!is_running_ || !task_->cancel()) return false;
    is_running_ = false;
    return true;
  }

  [[nodiscard]] bool is_running() const noexcept { return is_running_; }
  /// Whether it was started, and gave a value or threw.
  [[nodiscard]] bool has_result() const noexcept {
    if (!task_) return false;
    return task_->outcome() == task_outcome::returned || threw();
  }
  [[nodiscard]] bool threw() const noexcept {
    return task_->outcome() == task_outcome::threw;
  }

  [[nodiscard]] const std::exception_ptr& error() const noexcept {
    return task_->error();
  }

 private:
  branch_owner* owner_ = nullptr;
  promise_base* task_ = nullptr;
  bool is_running_ = false;
};

/// A task that awaits `awaitable` (kept by value if it is an rvalue, else by reference).
template <class Awaitable>
task<await_result_t<Awaitable>> await_in_task(Awaitable awaitable) {
  co_return co_await std::forward<Awaitable>(awaitable);
}

template <class T>
struct is_task : std::false_type {};
template <class T>
struct is_task<task<T>> : std::true_type {};

/// Any awaitable as a task; a task is one already.
template <class Awaitable>
auto as_task(Awaitable&& awaitable) {
  static_assert(is_awaitable<Awaitable>, "this cannot be awaited");
  if constexpr (is_task<Awaitable>::value) {
    return task(std::move(awaitable));
  } else {
    return await_in_task<Awaitable>(std::forward<Awaitable>(awaitable));
  }
}

template <class Awaitable>
using task_for = decltype(as_task(std::declval<Awaitable>()));

}  // namespace manyworlds::inline v0
