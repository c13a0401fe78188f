// Scope: runs tasks side by side; there is no other way to do it.
#pragma once

#include <cassert>
#include <concepts>
#include <coroutine>
#include <cstddef>
#include <exception>
#include <functional>
#include <type_traits>
#include <utility>

#include "manyworlds/detail/assertion.hpp"
#include "manyworlds/detail/body.hpp"
#include "manyworlds/detail/promise.hpp"
#include "manyworlds/detail/scope_child.hpp"
#include "manyworlds/source_position.hpp"

namespace manyworlds::inline v0 {

namespace detail {

template <class Body>
class scope_run;
template <class Body>
class scope_awaiter;

/// Holds for what a child of a scope is made of to await it: an operation, or anything
/// else that a task can await and that is no task<void>.
template <class A>
concept awaited_in_child =
    !std::convertible_to<A, task<void>> && is_awaitable<std::decay_t<A>>;

}  // namespace detail

/// Tasks that run side by side and end before `co_await scope::run(body)` does, on every
/// path.
///
///     co_await scope::run([&](scope& s) -> task<void> {
///       s.spawn(first());
///       s.spawn(w.send(x, mw::to{1}));
///       s.spawn([&]() -> task<void> { co_await w.recv(y, mw::from{1}); });
///       co_return;
///     });
///
/// The body is a child like the others. A child that throws cancels its siblings. A run
/// that is cancelled cancels its children and waits for them. The body's locals die
/// before its siblings do: what children share is declared outside.
///
/// There is no public constructor: a scope lives for one run. Thread: the home's, for all
/// members.
class scope {
 public:
  scope(const scope&) = delete;
  scope& operator=(const scope&) = delete;

  /// Returns what to await. A closure that has a name is taken by reference, one written
  /// in the awaited expression by value.
  ///
  /// Errors: the first that a child threw, when all have ended; std::invalid_argument if
  /// the body gives an empty task.
  template <class Body>
  static detail::scope_run<Body> run(Body&& body);

  /// Starts a child at the home's next turn, in the order of spawning. In a scope that is
  /// cancelled already the child is never started: it is destroyed here. Errors:
  /// std::invalid_argument for an empty task.
  void spawn(task<void> child);

  /// Starts a child that awaits an operation, or anything else that a task can await. It
  /// is moved into the child's frame, also if it has a deadline or a token. What the
  /// await gives is dropped: a value that owns something does not compile. An error that
  /// names the line of its await names the one that spawned it.
  ///
  /// Lifetime: what an operation refers to, such as its buffers, must live until the
  /// child has ended; the body's locals may be gone before. Errors: none here; what the
  /// await throws is the child's.
  template <detail::awaited_in_child Awaitable>
  void spawn(Awaitable&& awaitable, source_position where = source_position());

  /// Starts `f(args...)` as a child. The callable and its arguments are moved into the
  /// child's frame, so that a capturing lambda may be written here. Errors: none here;
  /// what it throws is the child's.
  template <class F, class... Args>
  requires(!std::convertible_to<F, task<void>> &&
           !detail::awaited_in_child<F>) void spawn(F&& f, Args&&... args);

  /// Cancels all children, also the body and those that have not started. The run then
  /// ends without an error. A child that calls it is cancelled at its next `co_await`.
  void cancel() noexcept;

  [[nodiscard]] bool is_cancelled() const noexcept { return is_cancelled_; }
  /// Returns the number of children that have not ended, the body included.
  [[nodiscard]] std::size_t size() const noexcept { return children_; }

 private:
  template <class Body>
  friend class detail::scope_awaiter;
  friend class detail::scope_child;

  /// Frees ended children, from the home's queue: a child's frame must not be destroyed
  /// from within its own last suspension.
  struct reaper final : detail::work {
    explicit reaper(scope& s) noexcept
        : detail::work(
              [](detail::work& w) noexcept { static_cast<reaper&>(w).owner.reap(); },
              detail::work_kind::tasks),
          owner(s) {}
    scope& owner;
    bool is_queued = false;
  };

  scope() noexcept : reaper_(*this) {}
  ~scope();

  std::coroutine_handle<> start(task<void> body, continuation& waiter);
  bool cancel_run() noexcept;
  bool must_resume() const noexcept;
  void rethrow();

  void child_ended(detail::scope_child& child, const std::exception_ptr& error) noexcept;
  void bury(detail::scope_child& child) noexcept;
  void cancel_children() noexcept;
  void queue_reaper() noexcept;
  void reap() noexcept;

  continuation* waiter_ = nullptr;
  detail::scope_child_list alive_;
  detail::scope_child_list asked_;
  detail::scope_child_list ended_;
  std::size_t children_ = 0;
  std::exception_ptr error_;
  reaper reaper_;
  bool is_cancelled_ = false;
  bool is_cancelling_ = false;
  bool cancels_run_ = false;
  bool lost_a_child_ = false;
};

namespace detail {

/// One run of a scope, not yet started.
template <class Body>
class MANYWORLDS_MUST_AWAIT scope_run : public not_for_asio {
 public:
  explicit scope_run(Body&& body) noexcept : body_(std::forward<Body>(body)) {}
  scope_awaiter<Body> operator co_await() && noexcept {
    return scope_awaiter<Body>(std::forward<Body>(body_));
  }

 private:
  Body body_;
};

template <class Body>
class scope_awaiter : public native_only {
 public:
  explicit scope_awaiter(Body&& body) noexcept : body_(std::forward<Body>(body)) {}

  bool await_ready() const noexcept { return false; }
  std::coroutine_handle<> await_start(continuation& k) {
    return scope_.start(std::invoke(body_, scope_), k);
  }
  bool await_cancel() noexcept { return scope_.cancel_run(); }
  bool await_must_resume() const noexcept { return scope_.must_resume(); }
  void await_resume() { scope_.rethrow(); }

 private:
  Body body_;
  scope scope_;
};

}  // namespace detail

// --------------------------------------------------------------------------------------

template <class Body>
detail::scope_run<Body> scope::run(Body&& body) {
  static_assert(std::is_invocable_r_v<task<void>, Body&, scope&>,
                "scope::run needs a callable that takes scope& and returns task<void>");
  detail::refuse_to_await_closure<detail::may_be_freed_twice<Body>>();
  return detail::scope_run<Body>(std::forward<Body>(body));
}

namespace detail {

template <class F, class... Args>
task<void> run_called(F f, Args... args) {
  task<void> called = std::invoke(f, std::move(args)...);
  co_await std::move(called);
}

}  // namespace detail

/// Makes a task that calls `f(args...)` and awaits what it gives. Callable and arguments
/// are moved into its frame, and live as long as it does. Errors: what `f` and its task
/// throw.
template <class F, class... Args>
detail::task_keeping<F, Args...> call_in_task(F&& f, Args&&... args) {
  static_assert(
      std::is_invocable_r_v<task<void>, std::decay_t<F>&, std::decay_t<Args>&&...>,
      "spawn and call_in_task need a callable that takes these arguments and returns "
      "task<void>; spawn also takes an operation as it is, s.spawn(w.send(...))");
  return detail::task_keeping<F, Args...>(
      detail::run_called<std::decay_t<F>, std::decay_t<Args>...>(
          std::forward<F>(f), std::forward<Args>(args)...));
}

namespace detail {

template <class Awaitable>
task<void> await_and_drop(Awaitable awaitable) {
  static_cast<void>(co_await std::move(awaitable));
}

}  // namespace detail

template <detail::awaited_in_child Awaitable>
void scope::spawn(Awaitable&& awaitable, [[maybe_unused]] source_position where) {
  constexpr bool is_named = std::is_lvalue_reference_v<Awaitable>;
  constexpr bool owns_nothing =
      is_named || std::is_void_v<await_result_t<std::decay_t<Awaitable>>> ||
      std::is_trivially_destructible_v<await_result_t<std::decay_t<Awaitable>>>;
  static_assert(!is_named,
                "what is spawned is awaited once, by its child: spawn it where it is "
                "made, or std::move it");
  static_assert(owns_nothing,
                "what this await gives owns something, which would be lost: spawn a "
                "lambda, [&]() -> mw::task<void> {...}, that awaits it and uses it");
  if constexpr (detail::notes_its_place<Awaitable>) awaitable.note_place(where);
  if constexpr (!is_named && owns_nothing)
    spawn(detail::await_and_drop<Awaitable>(std::forward<Awaitable>(awaitable)));
}

template <class F, class... Args>
requires(!std::convertible_to<F, task<void>> &&
         !detail::awaited_in_child<F>) void scope::spawn(F&& f, Args&&... args) {
  spawn(task<void>(call_in_task(std::forward<F>(f), std::forward<Args>(args)...)));
}

inline void scope::spawn(task<void> child) {
  assert(waiter_->home().is_current() && "a scope is used on its home's thread");
  if (!child) detail::refuse_empty_task();
  if (is_cancelled_) {
    lost_a_child_ = true;
    return;
  }
  auto* added = new detail::scope_child(*this, std::move(child), waiter_->home());
  alive_.push_back(*added);
  ++children_;
  added->resume();
}

inline std::coroutine_handle<> scope::start(task<void> body, continuation& waiter) {
  if (!body) detail::refuse_empty_task();
  waiter_ = &waiter;
  auto* added = new detail::scope_child(*this, std::move(body), waiter.home());
  alive_.push_back(*added);
  ++children_;
  return added->take();
}

inline void scope::cancel() noexcept {
  cancel_children();
  if (!ended_.empty()) queue_reaper();
}

/// Moves each child to `asked_` before it is asked, so that children which end, spawn or
/// cancel meanwhile find consistent lists.
inline void scope::cancel_children() noexcept {
  is_cancelled_ = true;
  if (std::exchange(is_cancelling_, true)) return;
  while (detail::scope_child* child = alive_.front()) {
    child->unlink();
    asked_.push_back(*child);
    if (child->cancel()) {
      lost_a_child_ = true;
      bury(*child);
    }
  }
  is_cancelling_ = false;
}

inline bool scope::cancel_run() noexcept {
  cancels_run_ = true;
  cancel_children();
  if (children_ == 0 && !reaper_.is_queued) return true;
  if (!ended_.empty()) queue_reaper();
  return false;
}

inline bool scope::must_resume() const noexcept {
  return error_ || !cancels_run_ || !lost_a_child_;
}

inline void scope::rethrow() {
  if (error_) std::rethrow_exception(std::exchange(error_, nullptr));
}

inline void scope::child_ended(detail::scope_child& child,
                               const std::exception_ptr& error) noexcept {
  bury(child);
  queue_reaper();
  if (child.was_cancelled()) lost_a_child_ = true;
  if (!error) return;
  if (!error_) error_ = error;
  cancel_children();
}

inline void scope::bury(detail::scope_child& child) noexcept {
  MW_ASSERT(children_ > 0, "a child ends once (law 1)");
  child.unlink();
  ended_.push_back(child);
  --children_;
}

inline void scope::queue_reaper() noexcept {
  MW_ASSERT(!ended_.empty(), "a reaper is queued only for children that have ended");
  if (std::exchange(reaper_.is_queued, true)) return;
  waiter_->home().schedule(reaper_);
}

inline void scope::reap() noexcept {
  MW_ASSERT(reaper_.is_queued && waiter_->home().is_current(),
            "the reaper runs from the home's queue");
  // A dying child's locals may spawn or cancel, so the list is read again for each one.
  while (detail::scope_child* child = ended_.front()) {
    child->unlink();
    delete child;
  }
  reaper_.is_queued = false;
  if (children_ == 0) waiter_->take().resume();
}

inline scope::~scope() {
  assert(children_ == 0 && "a scope's run was destroyed while it was awaited");
  while (detail::scope_child* child = ended_.front()) {
    child->unlink();
    delete child;
  }
}

namespace detail {

inline std::coroutine_handle<> scope_child::ended() noexcept {
  scope_.child_ended(*this, task_.promise().error());
  return std::noop_coroutine();
}

}  // namespace detail

}  // namespace manyworlds::inline v0
