// Event hub: hands what happens to many subscribers, none of which delays it.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <new>
#include <utility>
#include <vector>

#include "manyworlds/coro/channel.hpp"

namespace manyworlds::inline v0::detail {

/// Holds what one subscriber has not taken yet. When it is full the oldest event goes for
/// the next, and is counted: the latest state is always there.
template <class Event>
class event_queue {
 public:
  // Without a place an event could only go to a task that is just waiting for it.
  explicit event_queue(std::size_t capacity)
      : events_(std::max<std::size_t>(capacity, 1)) {}

  /// Adds an event. A task that waited for it is added to `told`. Thread: one at a
  /// time.
  void put(const Event& e, channel_waiters& told) noexcept {
    try {
      while (!events_.try_push(Event(e), told)) {
        if (events_.try_pop()) missed_.fetch_add(1);
      }
    } catch (const std::bad_alloc&) {
      missed_.fetch_add(1);
    }
  }
  [[nodiscard]] channel<Event>& events() noexcept { return events_; }
  [[nodiscard]] std::uint64_t missed() const noexcept { return missed_.load(); }

 private:
  channel<Event> events_;
  std::atomic<std::uint64_t> missed_{0};
};

/// The subscribers to one source of events. Thread: any.
template <class Event>
class event_hub {
 public:
  /// Tells all subscribers. Tasks that waited are added to `told`; the caller resumes
  /// them when it holds no lock.
  void tell(const Event& e, channel_waiters& told) noexcept {
    const std::lock_guard lock(mutex_);
    for (const auto& each : subscribers_) {
      if (const auto queue = each.lock()) queue->put(e, told);
    }
  }

  [[nodiscard]] std::shared_ptr<event_queue<Event>> subscribe(std::size_t capacity) {
    auto queue = std::make_shared<event_queue<Event>>(capacity);
    const std::lock_guard lock(mutex_);
    std::erase_if(subscribers_, [](const auto& each) { return each.expired(); });
    if (is_closed_) {
      queue->events().close();
    } else {
      subscribers_.push_back(queue);
    }
    return queue;
  }

  /// Ends the stream of all subscribers.
  void close() noexcept {
    std::vector<std::weak_ptr<event_queue<Event>>> told;
    {
      const std::lock_guard lock(mutex_);
      is_closed_ = true;
      told.swap(subscribers_);
    }
    for (const auto& each : told) {
      if (const auto queue = each.lock()) queue->events().close();
    }
  }

 private:
  std::mutex mutex_;
  bool is_closed_ = false;                                      // guarded by mutex_
  std::vector<std::weak_ptr<event_queue<Event>>> subscribers_;  // guarded by mutex_
};

}  // namespace manyworlds::inline v0::detail
