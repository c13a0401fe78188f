// World events: a stream of what happens to the worlds of a runtime.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string_view>
#include <utility>
#include <vector>

#include "manyworlds/address.hpp"
#include "manyworlds/coro/channel.hpp"
#include "manyworlds/coro/task.hpp"
#include "manyworlds/failure.hpp"
#include "manyworlds/inline_text.hpp"

namespace manyworlds::inline v0 {

enum class world_event_kind : std::uint8_t {
  formed,
  suspect,    ///< a member is silent; it may come back
  recovered,  ///< a suspect member was heard again
  broken,     ///< also one that could not be formed
  closed,     ///< left, by us or by all others
};
[[nodiscard]] std::string_view name_of(world_event_kind k) noexcept;

struct world_event {
  world_event_kind kind = world_event_kind::formed;
  world_name world = {};
  std::uint64_t epoch = 0;  ///< 0 if the world could not be formed
  /// The member that it is about: ours for `formed`, `no_rank` if there is none.
  rank_t rank = no_rank;
  /// Set for `broken` and `closed`; `world::failure` says more.
  enum cause cause = cause::none;
};

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

/// A subscriber's end of the stream: the events since it was made, in order for each
/// world. It never delays a world: when `capacity` events wait, the oldest is dropped
/// for the next and counted, so that the latest state is always there. Copies share
/// what waits. Thread: any; `next` resumes on its caller's executor.
class world_events {
 public:
  explicit world_events(std::shared_ptr<world_event_queue> queue) noexcept
      : queue_(std::move(queue)) {}

  /// Waits for the next event. Errors: world_error (`runtime_stopped`) when the runtime
  /// of the worlds has ended and everything was taken.
  [[nodiscard]] task<world_event> next() const { return next_of(queue_); }
  /// Returns the number of events dropped so far.
  [[nodiscard]] std::uint64_t missed() const noexcept { return queue_->missed(); }

 private:
  [[nodiscard]] static task<world_event> next_of(
      std::shared_ptr<world_event_queue> queue);

  std::shared_ptr<world_event_queue> queue_;
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

}  // namespace manyworlds::inline v0
