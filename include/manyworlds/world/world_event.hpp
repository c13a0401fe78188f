// World events: a stream of what happens to the worlds of a runtime.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string_view>
#include <utility>

#include "manyworlds/address.hpp"
#include "manyworlds/coro/task.hpp"
#include "manyworlds/failure.hpp"
#include "manyworlds/inline_text.hpp"

namespace manyworlds::inline v0 {

namespace detail {
template <class Event>
class event_queue;
}  // namespace detail

/// What happened to a world.
enum class world_event_kind : std::uint8_t {
  formed,
  suspect,    ///< a member is silent; it may come back
  recovered,  ///< a suspect member was heard again
  broken,     ///< also one that could not be formed
  closed,     ///< left, by us or by all others
};

[[nodiscard]] std::string_view name_of(world_event_kind k) noexcept;

/// One thing that happened to a world of the runtime.
struct world_event {
  world_event_kind kind = world_event_kind::formed;
  world_name world = {};
  std::uint64_t epoch = 0;  ///< 0 if the world could not be formed
  /// The member that it is about: ours for `formed`, `no_rank` if there is none.
  rank_t rank = no_rank;
  /// Set for `broken` and `closed`; `world::failure` says more.
  enum cause cause = cause::none;
};

/// A subscriber's end of the stream: the events since it was made, in order for each
/// world. It never delays a world: when `capacity` events wait, the oldest is dropped
/// for the next and counted, so that the latest state is always there. Copies share
/// what waits. Thread: any; `next` resumes on its caller's executor.
///
///     mw::world_events events = worlds.events();
///     for (;;) {
///       const mw::world_event e = co_await events.next();
///       if (e.kind == mw::world_event_kind::suspect) use(e.world.view(), e.rank);
///     }
class world_events {
 public:
  explicit world_events(std::shared_ptr<detail::event_queue<world_event>> queue) noexcept
      : queue_(std::move(queue)) {}

  /// Waits for the next event. Errors: world_error (`runtime_stopped`) once the runtime
  /// of the worlds has ended and everything was taken.
  task<world_event> next() const { return next_of(queue_); }
  /// Returns the number of events dropped so far.
  [[nodiscard]] std::uint64_t missed() const noexcept;

 private:
  static task<world_event> next_of(
      std::shared_ptr<detail::event_queue<world_event>> queue);

  std::shared_ptr<detail::event_queue<world_event>> queue_;
};

}  // namespace manyworlds::inline v0
