// Reply feed: gives the replies of one call to a thread or a loop that is not the
// dispatcher's.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <stop_token>
#include <utility>
#include <vector>

#include "manyworlds/coro/channel.hpp"
#include "manyworlds/detail/assertion.hpp"
#include "manyworlds/serve/dispatcher.hpp"
#include "manyworlds/world/outcome.hpp"
#include "manyworlds/world/runtime.hpp"

namespace manyworlds::inline v0 {

/// Options of a reply feed.
struct reply_feed_options {
  /// Limits the whole call, its replies included.
  duration limit = duration::max();
  /// Replies that were not taken, in bytes plus 64 for each. Beyond it the worker's
  /// handler waits.
  std::size_t window = std::size_t{64} * 1024;
  /// Called when there is something to take after a take that found nothing, for
  /// example to post to the loop that takes. Must return soon, and not throw. The
  /// feed's destructor waits for a call that runs; none follows it. Thread: the
  /// dispatcher's reactor.
  std::function<void()> ready = {};
};

/// A call of a dispatcher for another thread, which takes the replies: one of an HTTP
/// server by `take`, or a foreign loop by `ready` and `try_take`.
///
///     mw::reply_feed tokens(rt, workers, std::move(prompt));
///     for (;;) {
///       const auto got = tokens.take(100ms);
///       for (const std::vector<std::byte>& each : got.replies) write(each);
///       if (got.is_over || !client_is_there()) break;  // destroying it cancels the call
///     }
///
/// All replies that are there are taken together, and the reactor wakes the taker only
/// if the taker waits. So a burst costs one change of threads. A task that is started
/// for each reply costs two changes each.
///
/// Thread: members, the constructor included, are for one thread, any one. Lifetime:
/// the runtime must outlive it. The dispatcher must outlive the call's admission: the
/// first `take` that gave something.
class reply_feed {
 public:
  struct batch {
    std::vector<std::vector<std::byte>> replies;
    /// True if no replies follow these.
    bool is_over = false;
    /// Why it is over; empty if in order. It has a cause of `dispatcher::call` or
    /// `reply_stream::next`, or `runtime_stopped` if the runtime ended first.
    failure why;
  };

  /// Starts the call. The request's bytes are kept as long as they are needed. Errors:
  /// world_error (`forked`); those of the call stand in `batch::why`.
  reply_feed(runtime& rt, dispatcher& workers, std::vector<std::byte> request,
             reply_feed_options options = {})
      : state_(std::make_shared<state>(std::move(request), std::move(options))) {
    (void)rt.start(feed(state_, workers));
  }
  reply_feed(const reply_feed&) = delete;
  reply_feed& operator=(const reply_feed&) = delete;
  /// Cancels the call at its worker, if it is not over.
  ~reply_feed() {
    cancel();
    const std::lock_guard lock(state_->telling);
    state_->is_dropped = true;
  }

  /// Takes the replies that have come. Waits for them, at most for `limit`; then the
  /// batch is empty. `duration::max()` is no limit.
  [[nodiscard]] batch take(duration limit) {
    std::unique_lock lock(state_->mutex);
    state_->is_awaited = true;
    (void)state_->came.wait_until(
        lock, later(std::chrono::steady_clock::now(), limit),
        [this] { return state_->is_over || !state_->ready.empty(); });
    state_->is_awaited = false;
    return take_locked();
  }
  /// Takes the replies that have come, without waiting. When it finds none, `ready` is
  /// called once there are some.
  [[nodiscard]] batch try_take() {
    const std::lock_guard lock(state_->mutex);
    batch got = take_locked();
    state_->is_to_be_told = got.replies.empty() && !got.is_over;
    return got;
  }
  /// Ends the call and its worker's handler. Its replies may be dropped.
  void cancel() noexcept {
    state_->gone.request_stop();
    // A feed that waits for room has to see it.
    const std::lock_guard lock(state_->mutex);
    state_->give_room();
  }

 private:
  struct state {
    state(std::vector<std::byte> asked, reply_feed_options how)
        : request(std::move(asked)), options(std::move(how)) {}

    /// Lets the feed go on if it waits for room. Precondition: `mutex` is held.
    void give_room() noexcept {
      if (std::exchange(is_full, false)) (void)room.try_push(true);
    }
    void tell() {
      const std::lock_guard lock(telling);
      if (!is_dropped && options.ready) options.ready();
    }

    const std::vector<std::byte> request;
    const reply_feed_options options;
    std::stop_source gone;
    /// Receives a value when there is room again.
    channel<bool> room{1};

    std::mutex mutex;
    std::condition_variable came;
    // Guarded by `mutex`, to `is_full`.
    std::vector<std::vector<std::byte>> ready;
    std::size_t cost = 0;  ///< of `ready`
    bool is_over = false;
    failure why;
    bool is_awaited = false;    ///< by a thread in `take`
    bool is_to_be_told = true;  ///< by `options.ready`
    bool is_full = false;       ///< the reactor waits for room

    /// Held while `options.ready` runs, which may destroy the feed.
    std::recursive_mutex telling;
    bool is_dropped = false;  // guarded by `telling`
  };
  static constexpr std::size_t cost_of_reply = 64;

  [[nodiscard]] batch take_locked() {
    batch got;
    got.replies.swap(state_->ready);
    state_->cost = 0;
    got.is_over = state_->is_over;
    if (got.is_over) got.why = state_->why;
    state_->give_room();
    return got;
  }

  /// Hands over what has come. Returns true if the taker has to catch up first.
  static bool put(state& s, std::vector<std::vector<std::byte>>& replies,
                  std::size_t cost) {
    bool wakes = false;
    bool tells = false;
    bool is_full = false;
    {
      const std::lock_guard lock(s.mutex);
      MW_ASSERT(!s.is_over, "no reply comes after the end of a feed");
      MW_ASSERT(s.ready.empty() == (s.cost == 0), "a feed counts what it holds");
      if (s.ready.empty()) {
        s.ready.swap(replies);
      } else {
        for (std::vector<std::byte>& each : replies) s.ready.push_back(std::move(each));
      }
      s.cost += cost;
      is_full = s.is_full = s.cost >= s.options.window && !s.gone.stop_requested();
      wakes = s.is_awaited;
      tells = std::exchange(s.is_to_be_told, false);
    }
    replies.clear();
    if (wakes) s.came.notify_one();
    if (tells) s.tell();
    return is_full;
  }

  /// Marks the feed as over, however the task ends.
  struct ending {
    explicit ending(state& s) noexcept : of(s) {}
    ending(const ending&) = delete;
    ending& operator=(const ending&) = delete;
    ~ending() {
      {
        const std::lock_guard lock(of.mutex);
        MW_ASSERT(!of.is_over, "law 1: a feed ends once");
        of.is_over = true;
        of.why = std::move(why);
      }
      of.came.notify_one();
      of.tell();
    }
    state& of;
    failure why{cause::runtime_stopped, "the runtime ended before the call"};
  };

  static task<void> feed(std::shared_ptr<state> s, dispatcher& workers) {
    ending end(*s);
    auto replies = co_await outcome(
        workers.call(s->request).within(s->options.limit).stop(s->gone.get_token()));
    failure why = replies.error();
    std::vector<std::vector<std::byte>> come;
    while (replies) {
      auto next = co_await outcome(replies->next());
      why = next.error();
      if (!next || !*next) break;
      std::size_t cost = 0;
      for (std::optional<std::vector<std::byte>> each = std::move(*next); each;
           each = replies->try_next()) {
        cost += each->size() + cost_of_reply;
        come.push_back(std::move(*each));
      }
      if (put(*s, come, cost)) (void)co_await s->room.pop();
    }
    end.why = std::move(why);
  }

  const std::shared_ptr<state> state_;
};

}  // namespace manyworlds::inline v0
