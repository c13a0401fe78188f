// World events: what happens to the worlds of a runtime, as a stream.
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
  suspect,    ///< a member was not heard of for a while; it may come back
  recovered,  ///< ... and has
  broken,     ///< also one that could not be formed
  closed,     ///< left, by us or by all others
};
[[nodiscard]] std::string_view name_of(world_event_kind k) noexcept;

struct world_event {
  world_event_kind kind = world_event_kind::formed;
  world_name world = {};
  /// 0 of a world that could not be formed.
  std::uint64_t epoch = 0;
  /// The member it is about; ours of `formed`, `no_rank` if it is about none.
  rank_t rank = no_rank;
  /// Of `broken` and `closed`; `world::failure` says the rest.
  enum cause cause = cause::none;
};

/// What one subscriber has not taken yet.
class world_event_queue {
 public:
  explicit world_event_queue(std::size_t capacity) : events_(capacity) {}

  /// One thread at a time. Who waited for it is added to `told`.
  void put(const world_event& e, channel_waiters& told) noexcept;
  [[nodiscard]] channel<world_event>& events() noexcept { return events_; }
  [[nodiscard]] std::uint64_t missed() const noexcept { return missed_.load(); }

 private:
  channel<world_event> events_;
  std::atomic<std::uint64_t> missed_{0};
};

/// A subscriber's end of the stream: what has happened since it was made, in order for
/// each world. It never holds up a world: when `capacity` events wait, the oldest is
/// dropped for the next and counted, so that the latest state of affairs is always there.
/// Any thread; `next` resumes on its caller's executor. Copies share what waits.
class world_events {
 public:
  explicit world_events(std::shared_ptr<world_event_queue> queue) noexcept
      : queue_(std::move(queue)) {}

  /// Waits for the next event. Throws world_error (`runtime_stopped`) when the runtime
  /// whose worlds they are of has ended, and everything was taken.
  [[nodiscard]] task<world_event> next() const { return next_of(queue_); }
  /// Events dropped so far.
  [[nodiscard]] std::uint64_t missed() const noexcept { return queue_->missed(); }

 private:
  [[nodiscard]] static task<world_event> next_of(
      std::shared_ptr<world_event_queue> queue);

  std::shared_ptr<world_event_queue> queue_;
};

/// Who is told of the worlds of one runtime. Any thread.
class world_event_hub {
 public:
  /// Those who waited for it are added to `told`, to be resumed by a caller who holds no
  /// lock any more.
  void tell(const world_event& e, channel_waiters& told) noexcept;
  [[nodiscard]] world_events subscribe(std::size_t capacity);
  /// Nothing happens any more.
  void close() noexcept;

 private:
  std::mutex mutex_;
  bool is_closed_ = false;                                     // guarded by mutex_
  std::vector<std::weak_ptr<world_event_queue>> subscribers_;  // guarded by mutex_
};

}  // namespace manyworlds::inline v0
