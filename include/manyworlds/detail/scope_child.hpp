// Scope child: one task of a scope, and the lists that a scope keeps of them.
#pragma once

#include <coroutine>
#include <cstddef>
#include <utility>

#include "manyworlds/coro/task.hpp"
#include "manyworlds/detail/assertion.hpp"

namespace manyworlds::inline v0 {
class scope;
}  // namespace manyworlds::inline v0

namespace manyworlds::inline v0::detail {

class scope_child;

/// A place in a circular list.
class scope_child_link {
 public:
  scope_child_link() noexcept = default;
  scope_child_link(const scope_child_link&) = delete;
  scope_child_link& operator=(const scope_child_link&) = delete;

  void unlink() noexcept {
    MW_ASSERT(is_linked(), "a child is taken out of a list that it is in");
    MW_ASSERT(before_->after_ == this && after_->before_ == this,
              "both neighbours in a list know of a link");
    before_->after_ = after_;
    after_->before_ = before_;
    before_ = after_ = this;
  }

 protected:
  ~scope_child_link() = default;

 private:
  friend class scope_child_list;
  [[nodiscard]] bool is_linked() const noexcept { return after_ != this; }

  scope_child_link* before_ = this;
  scope_child_link* after_ = this;
};

/// Children in the order they came; the list's own link is its end.
class scope_child_list : private scope_child_link {
 public:
  [[nodiscard]] bool empty() const noexcept { return after_ == this; }
  /// Returns the first child, or null.
  [[nodiscard]] scope_child* front() const noexcept;
  /// Appends a link. Precondition: the link is in no list.
  void push_back(scope_child_link& link) noexcept {
    MW_ASSERT(!link.is_linked(), "a child is in one list at a time");
    link.before_ = before_;
    link.after_ = this;
    before_->after_ = &link;
    before_ = &link;
  }
};

/// A task of a scope. It is queued once to be started, and its task resumes it at the
/// end.
class scope_child final : public continuation, public scope_child_link {
 public:
  scope_child(scope& s, task<void>&& t, executor& home) noexcept
      : continuation(
            [](continuation& k) noexcept { return static_cast<scope_child&>(k).next(); },
            &home),
        scope_(s),
        task_(std::move(t)) {}

  /// Asks the task to stop. True: it has ended as cancelled now. False: the scope will be
  /// told.
  bool cancel() noexcept {
    // Before the start the child is in the home's queue and cannot be taken out of it.
    return task_.promise().cancel() && is_started_;
  }
  [[nodiscard]] bool was_cancelled() const noexcept {
    return task_.promise().outcome() == task_outcome::cancelled;
  }

  static void* operator new(std::size_t size) { return frame_pool::allocate(size); }
  static void operator delete(void* p, std::size_t size) noexcept {
    frame_pool::deallocate(p, size);
  }

 private:
  std::coroutine_handle<> next() noexcept {
    if (std::exchange(is_started_, true) || was_cancelled()) return ended();
    return task_.promise().start(*this);
  }
  std::coroutine_handle<> ended() noexcept;

  scope& scope_;
  task<void> task_;
  bool is_started_ = false;
};

inline scope_child* scope_child_list::front() const noexcept {
  return empty() ? nullptr : static_cast<scope_child*>(after_);
}

}  // namespace manyworlds::inline v0::detail
