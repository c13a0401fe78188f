// Dispatcher: requests over a changing set of worlds, each with one worker.
#pragma once

#include <chrono>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <stop_token>
#include <type_traits>
#include <utility>
#include <vector>

#include "manyworlds/coro/task.hpp"
#include "manyworlds/detail/body.hpp"
#include "manyworlds/inline_text.hpp"
#include "manyworlds/memory/gather_list.hpp"
#include "manyworlds/serve/reply_stream.hpp"
#include "manyworlds/world/world.hpp"

namespace manyworlds::inline v0 {

namespace detail {
class dispatch_core;
}  // namespace detail

/// Options of a dispatcher.
struct dispatch_options {
  /// Calls that a worker has at once. The worker may ask for fewer.
  std::size_t in_flight_per_worker = 64;
  /// Calls that wait for a worker. One beyond it fails with `overloaded`.
  std::size_t queue = 1024;
  /// Workers that a call is given to before its first reply, one after the other.
  int tries = 3;
  /// Time that a call waits while there is no worker at all; then it fails with
  /// `no_member_left`.
  duration patience = std::chrono::seconds(1);
  /// Unread replies of one call, in bytes plus 64 for each. Beyond it the worker's
  /// handler waits. A reply may be larger; it is sent at once while less than half of
  /// the window is unread.
  std::size_t window = std::size_t{64} * 1024;
  std::size_t largest_reply = std::size_t{16} * 1024 * 1024;
  /// Calls in a row that may be asked twice. When a worker is suspect, its calls
  /// without a reply are given to another worker as well, and the first reply wins.
  /// Every ten answered calls allow one more. 0 asks no call twice.
  std::size_t ask_again = 256;
  /// Name that stands in the errors of calls.
  inline_text<46> name = {};
};

/// Counts what a dispatcher has done so far.
struct dispatch_counters {
  /// Calls that ended in order, and calls that ended by an error. Open calls are in
  /// neither.
  std::uint64_t answered = 0;
  std::uint64_t failed = 0;
  /// Calls that were given to a second worker while theirs was suspect, and how many of
  /// them that worker answered first.
  std::uint64_t asked_twice = 0;
  std::uint64_t answered_by_another = 0;
  /// Answers that were dropped: another worker had won, or the call was over.
  std::uint64_t late_answers = 0;
  /// Calls that a worker gave back because it drains.
  std::uint64_t given_back = 0;
};

/// Identifies one run of `dispatcher::serve`. Ids are never reused.
enum class worker_id : std::uint64_t { none = 0 };

/// A worker as `pick` sees it.
struct worker_status {
  worker_id id = worker_id::none;
  world_name world;
  std::uint64_t epoch = 0;
  /// Calls that it has, and that it may have.
  std::size_t depth = 0;
  std::size_t limit = 0;
  /// Calls that it was given so far.
  std::uint64_t calls = 0;
  /// Word that it published last (`call_server::publish_load`).
  std::uint64_t load = 0;
  /// True if it was not heard from for a while and may be lost soon.
  bool is_suspect = false;
  /// True if it gets nothing new. `pick` is not shown such a worker.
  bool is_draining = false;
};

/// Chooses a worker by its index, or chooses none.
template <class Pick>
concept worker_policy = std::invocable<const Pick&, std::span<const worker_status>>;

/// Chooses the worker with the fewest calls among those that are neither suspect nor
/// full. A tie goes to the one that was given the fewest so far.
struct least_depth {
  /// Returns the index of that worker, or nothing.
  [[nodiscard]] std::optional<std::size_t> operator()(
      std::span<const worker_status> workers) const noexcept;
};

namespace detail {

/// Refers to any policy. Lifetime: one call.
class pick_reference {
 public:
  template <class Pick>
  explicit pick_reference(const Pick& pick) noexcept
      : pick_(std::addressof(pick)),
        ask_([](const void* p, std::span<const worker_status> workers) {
          return std::optional<std::size_t>((*static_cast<const Pick*>(p))(workers));
        }) {}

  [[nodiscard]] std::optional<std::size_t> operator()(
      std::span<const worker_status> workers) const {
    return ask_(pick_, workers);
  }

 private:
  const void* pick_;
  std::optional<std::size_t> (*ask_)(const void*, std::span<const worker_status>);
};

/// Describes what a call asks for.
class call_request {
 public:
  explicit call_request(gather_list sent) noexcept : data(std::move(sent)) {}

  gather_list data;
  duration limit = duration::max();
  std::stop_token token;
};

template <class Pick>
class call_awaiter;

/// A call, not yet awaited. See `dispatcher::call`.
template <class Pick>
class MANYWORLDS_MUST_AWAIT dispatched_call : public not_for_asio {
 public:
  using value_type = reply_stream;

  dispatched_call(std::shared_ptr<dispatch_core> core, gather_list data,
                  Pick&& pick) noexcept
      : core_(std::move(core)),
        request_(std::move(data)),
        pick_(std::forward<Pick>(pick)) {}

  /// Limits the whole call, its replies included. The limit travels to the worker.
  MANYWORLDS_MUST_AWAIT dispatched_call&& within(duration limit) && noexcept {
    request_.limit = limit;
    return std::move(*this);
  }
  template <detail::no_span T>
  void within(T) && {
    detail::refuse_number<T>();
  }
  /// Ends the call, its replies included, when the token is triggered. The worker's
  /// handler ends too.
  MANYWORLDS_MUST_AWAIT dispatched_call&& stop(std::stop_token token) && noexcept {
    request_.token = std::move(token);
    return std::move(*this);
  }
  call_awaiter<Pick> operator co_await() && {
    return call_awaiter<Pick>(std::move(core_), std::move(request_),
                              std::forward<Pick>(pick_));
  }

 private:
  std::shared_ptr<dispatch_core> core_;
  call_request request_;
  Pick pick_;
};

}  // namespace detail

/// Sends requests to the worlds that are served at the moment, each with one worker.
/// The worker runs `call_server::serve` there.
///
///     dispatcher workers;
///     auto serve = [&](world& w) { return workers.serve(w); };
///     s.spawn(keep(rt, st, {.name = "left", .rank = 0, .size = 2}, serve,
///                  after_close::form_again));
///     auto replies = co_await workers.call(request);
///     while (auto reply = co_await replies.next()) use(*reply);
///
/// A call is executed at least once and answered exactly once. If its worker is lost
/// before the first reply came, another worker gets it; later its stream fails. A call
/// that is given up occupies its place at the worker until the worker says that it is
/// free. So a worker that is stopped is given no more than `in_flight_per_worker`.
///
/// A worker that is suspect (`world_options::suspect_after`, 1 s) may be stopped. Its
/// calls without a reply are given to a second worker as well, which was heard from
/// just now and which `pick` chooses. The first reply wins; the other worker's handler
/// is cancelled. This counts as one of the `tries`, and is bounded by
/// `dispatch_options::ask_again`. When more than two thirds of the workers are silent,
/// the machine or the leader itself was probably frozen. Then no call is asked twice
/// until all workers were heard again or are lost.
///
/// A worker that drains (`call_server::drain`) is given nothing new, and other workers
/// get what it has not begun. When the runtime drains, `call` throws `closed`, calls
/// that were admitted go on to their end, and `serve` returns when none is left.
///
/// Thread: the reactor of the worlds, from tasks.
///
/// Errors: std::logic_error outside of tasks, and world_error (`invalid_argument`) on
/// another reactor. `call` and `serve` list more.
///
/// Lifetime: it may be destroyed at any time there, or anywhere after the runtime has
/// ended. Calls and streams that are still open fail with `no_member_left`, and `serve`
/// returns.
class dispatcher {
 public:
  explicit dispatcher(dispatch_options options = {});
  dispatcher(const dispatcher&) = delete;
  dispatcher& operator=(const dispatcher&) = delete;
  ~dispatcher();

  /// Serves a formed world of two; the other member is a worker. It uses lane 0; the
  /// other lanes are free. Meant as the body of `keep` or `accept`. Returns when the
  /// worker was drained by `drain`, or when the runtime stops and no call is left.
  ///
  /// Errors: world_error with the causes of any operation when the world breaks or the
  /// worker leaves (`closed`). The worker's calls are given to others, or fail. A worker
  /// that breaks the protocol breaks its world (`protocol_error`). `invalid_argument`:
  /// the world has not two members.
  task<void> serve(world& w);

  /// Sends a request and returns its replies once the first of them, or the end, has
  /// come. `data` is anything that a world can send. Lifetime: `data` must live until
  /// the await ends, not longer.
  ///
  /// `pick(std::span<const worker_status>)` returns the index of a worker, or nothing:
  /// then it is asked again when something has changed. It is called on the reactor,
  /// while the await lasts. A chosen worker that is full is waited for. Calls that wait
  /// are served in the order they came.
  ///
  /// Errors: world_error with one of these, or what `pick` threw.
  /// - `overloaded`: too many calls wait for a worker.
  /// - `no_member_left`: there was no worker for `dispatch_options::patience`, or the
  ///   dispatcher was destroyed.
  /// - `timed_out`, `cancelled`: of the call's `within` and `stop`.
  /// - `closed`: the runtime stops.
  /// - `invalid_argument`: a request that the worker does not take, or a `pick` out of
  ///   range.
  /// - `handler_failed`, or a cause that the handler chose: it threw before its first
  ///   reply.
  /// - The causes of a break, or `closed`: the last worker that was tried was lost so.
  template <class Pick>
  detail::dispatched_call<Pick> call(gather_list data, Pick&& pick) {
    static_assert(worker_policy<std::remove_reference_t<Pick>>,
                  "pick takes a std::span<const mw::worker_status>, const, and gives an "
                  "index or nothing (std::optional<std::size_t>)");
    detail::refuse_to_await_closure<detail::may_be_freed_twice<Pick>>();
    return detail::dispatched_call<Pick>(core_, std::move(data),
                                         std::forward<Pick>(pick));
  }
  detail::dispatched_call<least_depth> call(gather_list data) {
    return call(std::move(data), least_depth());
  }

  // Refuses, with a sentence, what cannot be sent.
  template <detail::not_sendable B, class... Rest>
  void call(B&&, Rest&&...) {
    detail::refuse_buffer<B, false>();
  }

  /// Gives the worker nothing new, and ends when its `serve` does: its calls have ended
  /// then, or its world is over. Ends at once for a worker that is gone. Errors: those of
  /// `dispatcher`.
  task<void> drain(worker_id worker);

  /// Returns the workers that serve at the moment, longest first.
  [[nodiscard]] std::vector<worker_status> workers() const;
  /// Returns how many calls wait for a worker.
  [[nodiscard]] std::size_t queued() const noexcept;
  /// Returns this dispatcher's counters. `runtime::dump` reports some of them for all
  /// of its dispatchers. Thread: the worlds' reactor.
  [[nodiscard]] dispatch_counters counters() const noexcept;

 private:
  std::shared_ptr<detail::dispatch_core> core_;
};

// --------------------------------------------------------------------------------------

namespace detail {

task<reply_stream> perform_call(std::shared_ptr<dispatch_core> core, call_request request,
                                pick_reference pick);

template <class Pick>
class call_awaiter : public native_only {
 public:
  call_awaiter(std::shared_ptr<dispatch_core>&& core, call_request&& request, Pick&& pick)
      : pick_(std::forward<Pick>(pick)),
        call_(perform_call(std::move(core), std::move(request), pick_reference(pick_))) {}
  call_awaiter(const call_awaiter&) = delete;
  call_awaiter& operator=(const call_awaiter&) = delete;
  ~call_awaiter() = default;

  bool await_ready() const noexcept { return false; }
  std::coroutine_handle<> await_start(continuation& k) noexcept {
    return call_.await_start(k);
  }
  bool await_cancel() noexcept { return call_.await_cancel(); }
  bool await_must_resume() const noexcept { return call_.await_must_resume(); }
  reply_stream await_resume() { return call_.await_resume(); }

 private:
  // The pick outlives the call, which refers to it.
  Pick pick_;
  task_awaiter<reply_stream> call_;
};

}  // namespace detail

}  // namespace manyworlds::inline v0
