// Session events: a stream of what happens to the workers and calls of a session.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "manyworlds/coro/task.hpp"
#include "manyworlds/failure.hpp"

namespace manyworlds::inline v0 {

namespace detail {
template <class Event>
class event_queue;
}  // namespace detail

/// What happened in a session.
enum class session_event_kind : std::uint8_t {
  ready,         ///< a worker is there: the first of its number, or its replacement
  suspect,       ///< a worker is silent; it may come back
  recovered,     ///< a suspect worker was heard again
  stuck,         ///< a worker has not ended, within `grace`, a call that it was to end
  freed,         ///< a stuck worker has ended that call
  lost,          ///< a worker has ended, or was silent for too long
  replaced,      ///< the replacement of a worker has again what is replayable
  not_replaced,  ///< a worker was not replaced, or lacks what was to be replayed; with a
                 ///< budget another try may follow
  call_failed,   ///< a call was ended on all of its workers
};

/// Returns the name of the enumerator.
[[nodiscard]] std::string_view name_of(session_event_kind kind) noexcept;

/// One thing that happened in a session.
struct session_event {
  session_event_kind kind = session_event_kind::ready;
  /// The worker that it is about, by its id; of a failed call the one that failed it, and
  /// -1 if none did.
  int worker = -1;
  /// Which of that number; 0 without a worker.
  std::uint64_t incarnation = 0;
  /// The call that it is about; 0 if there is none.
  std::uint64_t call = 0;
  /// Why, where something went wrong.
  enum cause cause = cause::none;
  /// Says for people what happened; empty where `kind` says all.
  std::string text = {};
};

/// A subscriber's end of the stream: what has happened since it was made, in order. It
/// never delays a session: when as many events wait as it can hold, the oldest is dropped
/// for the next and counted. Copies share what waits. Thread: any; `next` resumes on its
/// caller's executor.
///
///     mw::session_events events = tp.events();
///     for (;;) {
///       const mw::session_event e = co_await events.next();
///       if (e.kind == mw::session_event_kind::lost) use(e.worker, e.text);
///     }
class session_events {
 public:
  explicit session_events(
      std::shared_ptr<detail::event_queue<session_event>> queue) noexcept
      : queue_(std::move(queue)) {}

  /// Waits for the next event. Errors: world_error (`closed`) once the session has ended
  /// and everything was taken.
  [[nodiscard]] task<session_event> next() const { return next_of(queue_); }
  /// Returns the number of events dropped so far.
  [[nodiscard]] std::uint64_t missed() const noexcept;

 private:
  static task<session_event> next_of(
      std::shared_ptr<detail::event_queue<session_event>> queue);

  std::shared_ptr<detail::event_queue<session_event>> queue_;
};

}  // namespace manyworlds::inline v0
