// World event hub: the subscribers to what happens to the worlds of a runtime.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "manyworlds/coro/channel.hpp"
#include "manyworlds/world/world_event.hpp"

namespace manyworlds::inline v0::detail {

/// Holds what one subscriber has not taken yet.
class world_event_queue {
 public:
  explicit world_event_queue(std::size_t capacity) : events_(capacity) {}

  /// Adds an event. A task that waited for it is added to `told`. Thread: one at a
  /// time.
  void put(const world_event& e, channel_waiters& told) noexcept;
  [[nodiscard]] channel<world_event>& events() noexcept { return events_; }
  [[nodiscard]] std::uint64_t missed() const noexcept { return missed_.load(); }

 private:
  channel<world_event> events_;
  std::atomic<std::uint64_t> missed_{0};
};

/// The subscribers to the worlds of one runtime. Thread: any.
class world_event_hub {
 public:
  /// Tells all subscribers. Tasks that waited are added to `told`; the caller resumes
  /// them when it holds no lock.
  void tell(const world_event& e, channel_waiters& told) noexcept;
  [[nodiscard]] world_events subscribe(std::size_t capacity);
  /// Ends the stream of all subscribers.
  void close() noexcept;

 private:
  std::mutex mutex_;
  bool is_closed_ = false;                                     // guarded by mutex_
  std::vector<std::weak_ptr<world_event_queue>> subscribers_;  // guarded by mutex_
};

}  // namespace manyworlds::inline v0::detail
