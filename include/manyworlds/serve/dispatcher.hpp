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

#include "manyworlds/coro/body.hpp"
#include "manyworlds/coro/task.hpp"
#include "manyworlds/inline_text.hpp"
#include "manyworlds/memory/gather_list.hpp"
#include "manyworlds/serve/reply_stream.hpp"
#include "manyworlds/world/world.hpp"

namespace manyworlds::inline v0 {

class dispatch_core;

struct dispatch_options {
  /// Calls that a worker has at once; fewer if it says so itself.
  std::size_t in_flight_per_worker = 64;
  /// Calls that wait for a worker; the next is `overloaded`.
  std::size_t queue = 1024;
  /// How many workers a call is given to before its first reply, one after the other.
  int tries = 3;
  /// How long a call waits while there is no worker at all; then `no_member_left`.
  duration patience = std::chrono::seconds(1);
  /// Replies of a call that nobody has read, in bytes and 64 for each; beyond it the
  /// worker's handler waits. A reply may be larger, and goes at once while less than half
  /// of the window is unread.
  std::size_t window = std::size_t{64} * 1024;
  std::size_t largest_reply = std::size_t{16} * 1024 * 1024;
  /// When a worker is suspect, its calls without a reply are asked of another worker as
  /// well, and the first reply wins. So many calls in a row may be; every ten answered
  /// calls allow one more. 0 asks no call twice.
  std::size_t ask_again = 256;
  /// Stands in the errors of calls.
  inline_text<46> name = {};
};

/// What a dispatcher has done so far.
struct dispatch_counters {
  /// Calls that ended in order, and by an error. Those that are open are in neither.
  std::uint64_t answered = 0;
  std::uint64_t failed = 0;
  /// Calls that were asked of another worker while theirs was suspect, and how many of
  /// them that one answered first.
  std::uint64_t asked_twice = 0;
  std::uint64_t answered_by_another = 0;
  /// Answers that came when another had won, or when the call was over. Dropped.
  std::uint64_t late_answers = 0;
  /// Calls that a worker gave back because it drains.
  std::uint64_t given_back = 0;
};

/// One run of `dispatcher::serve`. Never used again.
enum class worker_id : std::uint64_t { none = 0 };

/// A worker as `pick` sees it.
struct worker_status {
  worker_id id = worker_id::none;
  world_name world;
  std::uint64_t epoch = 0;
  /// Calls it has, and may have.
  std::size_t depth = 0;
  std::size_t limit = 0;
  /// Calls it was given so far.
  std::uint64_t calls = 0;
  /// The word that it published last (`call_server::publish_load`).
  std::uint64_t load = 0;
  /// It was not heard of for a while, and may be about to be lost.
  bool is_suspect = false;
  /// Gets nothing new; `pick` is not shown those.
  bool is_draining = false;
};

/// Chooses a worker, by its index, or none.
template <class Pick>
concept worker_policy = std::invocable<const Pick&, std::span<const worker_status>>;

/// The worker with the fewest calls, of those that are neither suspect nor full; then the
/// one that had the fewest so far.
struct least_depth {
  [[nodiscard]] std::optional<std::size_t> operator()(
      std::span<const worker_status> workers) const noexcept;
};

/// Any policy, for the time of one call.
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

/// What a call asks for.
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
class [[nodiscard]] dispatched_call : public not_for_asio {
 public:
  using value_type = reply_stream;

  dispatched_call(std::shared_ptr<dispatch_core> core, gather_list data,
                  Pick&& pick) noexcept
      : core_(std::move(core)),
        request_(std::move(data)),
        pick_(std::forward<Pick>(pick)) {}

  /// The time that the whole call has, its replies included. It travels to the worker.
  [[nodiscard]] dispatched_call&& within(duration limit) && noexcept {
    request_.limit = limit;
    return std::move(*this);
  }
  /// Ends the call, its replies included, when the token is triggered. So does the
  /// worker's handler.
  [[nodiscard]] dispatched_call&& stop(std::stop_token token) && noexcept {
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

/// Requests over the worlds that are served at the moment, each with one worker (who runs
/// `call_server::serve` there).
///
///     dispatcher workers;
///     auto serve = [&](world& w) { return workers.serve(w); };
///     s.spawn(keep(rt, st, {.name = "left", .rank = 0, .size = 2}, serve,
///                  after_close::form_again));
///     auto replies = co_await workers.call(request);
///     while (auto reply = co_await replies.next()) use(*reply);
///
/// A call is executed at least once and answered exactly once: if its worker is lost
/// before the first reply came, another is asked; later its stream fails. One that is
/// given up occupies its place at the worker until that has said it is free, so that a
/// worker that is stopped is given no more than `in_flight_per_worker`.
///
/// A worker that is suspect (`world_options::suspect_after`, 1 s) may be stopped: its
/// calls without a reply are asked of another worker as well, one that was heard of just
/// now and that `pick` chooses among those. The first reply wins; the other worker's
/// handler is cancelled. This counts as one of the `tries`, and is bounded by
/// `dispatch_options::ask_again`. When more than two thirds of the workers are silent, as
/// those of a frozen machine, or all that a leader sees that was frozen itself, no call
/// is asked twice until all of them were heard again or are lost.
///
/// A worker that drains (`call_server::drain`) is given nothing new, and what it has not
/// begun is asked of others. When the runtime drains, `call` throws `closed`, calls that
/// were admitted go on to their end, and `serve` returns when none is left.
///
/// All of it on one reactor, that of the worlds, from tasks: elsewhere it throws
/// (std::logic_error outside of tasks, world_error `invalid_argument` on another
/// reactor). It may be destroyed at any time there, or anywhere after the runtime has
/// ended: calls and streams that are still open fail with `no_member_left`, and `serve`
/// returns.
class dispatcher {
 public:
  explicit dispatcher(dispatch_options options = {});
  dispatcher(const dispatcher&) = delete;
  dispatcher& operator=(const dispatcher&) = delete;
  ~dispatcher();

  /// The body of a formed world of two, whose other member is a worker; lane 0 is the
  /// dispatcher's, the others are free. Returns when the worker was drained by `drain`,
  /// or the runtime stops and no call is left. Throws the world's failure when it breaks
  /// or the worker leaves; what the worker had to do is given to others, or fails. A
  /// worker that sends what it must not breaks its world
  /// (`protocol_error`).
  [[nodiscard]] task<void> serve(world& w);

  /// Sends a request and gives its replies once the first of them, or the end, has come.
  /// `data` is anything that a world can send and must live until the await ends, not
  /// longer.
  ///
  /// `pick(std::span<const worker_status>)` gives the index of a worker, or nothing: ask
  /// again when something has changed. It is asked on the reactor, while the await lasts;
  /// one that is full is waited for. Calls that wait are served in the order they came.
  ///
  /// Throws world_error: `overloaded` if too many wait; `no_member_left` if there was no
  /// worker for `dispatch_options::patience`; `timed_out`, `cancelled`; the cause by
  /// which the last worker was lost that was tried; what a handler threw before its first
  /// reply; `closed` when the runtime stops; `invalid_argument` for a request that the
  /// worker does not take, or a `pick` out of range. And what `pick` throws.
  template <class Pick>
  [[nodiscard]] dispatched_call<Pick> call(gather_list data, Pick&& pick) {
    static_assert(worker_policy<std::remove_reference_t<Pick>>,
                  "pick takes a std::span<const mw::worker_status>, const, and gives an "
                  "index or nothing (std::optional<std::size_t>)");
    refuse_to_await_closure<may_be_freed_twice<Pick>>();
    return dispatched_call<Pick>(core_, std::move(data), std::forward<Pick>(pick));
  }
  [[nodiscard]] dispatched_call<least_depth> call(gather_list data) {
    return call(std::move(data), least_depth());
  }

  // What cannot be sent, and what to do about it.
  template <detail::not_sendable B, class... Rest>
  void call(B&&, Rest&&...) {
    detail::refuse_buffer<B, false>();
  }

  /// Gives the worker nothing new, and ends when its `serve` does: the calls it has have
  /// ended then, or its world is over. At once for one that is gone.
  [[nodiscard]] task<void> drain(worker_id worker);

  /// Those that serve at the moment, longest first.
  [[nodiscard]] std::vector<worker_status> workers() const;
  /// Calls that wait for a worker.
  [[nodiscard]] std::size_t queued() const noexcept;
  /// On the worlds' reactor; `runtime::dump` says some of them for all of its
  /// dispatchers.
  [[nodiscard]] dispatch_counters counters() const noexcept;

 private:
  std::shared_ptr<dispatch_core> core_;
};

// --------------------------------------------------------------------------------------

[[nodiscard]] task<reply_stream> perform_call(std::shared_ptr<dispatch_core> core,
                                              call_request request, pick_reference pick);

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
  // Outlives the call, which refers to it.
  Pick pick_;
  task_awaiter<reply_stream> call_;
};

}  // namespace manyworlds::inline v0
