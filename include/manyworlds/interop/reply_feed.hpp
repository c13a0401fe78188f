// Reply feed: the replies of one call for a thread or a loop that is not the
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
#include "manyworlds/serve/dispatcher.hpp"
#include "manyworlds/world/outcome.hpp"
#include "manyworlds/world/runtime.hpp"

namespace manyworlds::inline v0 {

struct reply_feed_options {
  /// Of the whole call, its replies included.
  duration limit = duration::max();
  /// Replies that were not taken, in bytes and 64 for each; beyond it the worker's
  /// handler waits.
  std::size_t window = std::size_t{64} * 1024;
  /// Called on the dispatcher's reactor when there is something to take after a take that
  /// found nothing, say to post to the loop that takes. Must return soon, and not throw.
  /// Not called any more once the feed is destroyed, which waits for one that runs.
  std::function<void()> ready = {};
};

/// A call of a dispatcher whose replies another thread takes: a thread of an HTTP server
/// by `take`, or a foreign loop by `ready` and `try_take`.
///
///     mw::reply_feed tokens(rt, workers, std::move(prompt));
///     for (;;) {
///       const auto got = tokens.take(100ms);
///       for (const mw::bytes& each : got.replies) write(each);
///       if (got.is_over || !client_is_there()) break;  // destroying it cancels the call
///     }
///
/// All replies that are there are taken together, and the reactor wakes the taker only if
/// that waits. So a burst costs one change of threads, not two for each reply as a task
/// does that is started for each.
///
/// Members are for one thread, any one; construction too. The runtime must outlive it,
/// and the dispatcher until the call was admitted: until the first `take` that gave
/// something.
class reply_feed {
 public:
  struct batch {
    std::vector<bytes> replies;
    /// Nothing comes behind these.
    bool is_over = false;
    /// Why it is over; nothing if in order. As `reply_stream::next` throws it, or
    /// `runtime_stopped` if the runtime ended first.
    failure why;
  };

  /// Starts the call. The request's bytes are kept as long as they are needed.
  reply_feed(runtime& rt, dispatcher& workers, bytes request,
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

  /// What has come and was not taken. Waits for it, at most for `limit`: then it is
  /// empty. `duration::max()` is no limit.
  [[nodiscard]] batch take(duration limit) {
    std::unique_lock lock(state_->mutex);
    state_->is_awaited = true;
    (void)state_->came.wait_until(
        lock, later(std::chrono::steady_clock::now(), limit),
        [this] { return state_->is_over || !state_->ready.empty(); });
    state_->is_awaited = false;
    return take_locked();
  }
  /// The same without waiting. When it finds nothing, `ready` is called once there is.
  [[nodiscard]] batch try_take() {
    const std::lock_guard lock(state_->mutex);
    batch got = take_locked();
    state_->is_to_be_told = got.replies.empty() && !got.is_over;
    return got;
  }
  /// Ends the call, and its worker's handler; its replies may be dropped.
  void cancel() noexcept {
    state_->gone.request_stop();
    // One that waits for room has to see it.
    const std::lock_guard lock(state_->mutex);
    state_->give_room();
  }

 private:
  struct state {
    state(bytes asked, reply_feed_options how)
        : request(std::move(asked)), options(std::move(how)) {}

    /// With `mutex` held.
    void give_room() noexcept {
      if (std::exchange(is_full, false)) (void)room.try_push(true);
    }
    void tell() {
      const std::lock_guard lock(telling);
      if (!is_dropped && options.ready) options.ready();
    }

    const bytes request;
    const reply_feed_options options;
    std::stop_source gone;
    /// Pushed to when there is room again.
    channel<bool> room{1};

    std::mutex mutex;
    std::condition_variable came;
    std::vector<bytes> ready;  // guarded by mutex, as what follows
    std::size_t cost = 0;      ///< of `ready`
    bool is_over = false;
    failure why;
    bool is_awaited = false;    ///< by a thread in `take`
    bool is_to_be_told = true;  ///< by `options.ready`
    bool is_full = false;       ///< the reactor waits for room

    /// Held while `options.ready` runs, which may destroy the feed.
    std::recursive_mutex telling;
    bool is_dropped = false;  // guarded by it
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

  /// Hands over what has come. True if the taker has to catch up first.
  static bool put(state& s, std::vector<bytes>& replies, std::size_t cost) {
    bool wakes = false;
    bool tells = false;
    bool is_full = false;
    {
      const std::lock_guard lock(s.mutex);
      if (s.ready.empty()) {
        s.ready.swap(replies);
      } else {
        for (bytes& each : replies) s.ready.push_back(std::move(each));
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

  /// Says that it is over, however the task ends.
  struct ending {
    explicit ending(state& s) noexcept : of(s) {}
    ending(const ending&) = delete;
    ending& operator=(const ending&) = delete;
    ~ending() {
      {
        const std::lock_guard lock(of.mutex);
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
    std::vector<bytes> come;
    while (replies) {
      auto next = co_await outcome(replies->next());
      why = next.error();
      if (!next || !*next) break;
      std::size_t cost = 0;
      for (std::optional<bytes> each = std::move(*next); each;
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
