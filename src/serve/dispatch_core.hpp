// Dispatch core: the workers of one dispatcher, and the calls that wait for one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "manyworlds/coro/executor.hpp"
#include "manyworlds/detail/member_work.hpp"
#include "manyworlds/serve/dispatcher.hpp"
#include "observe/tally.hpp"
#include "serve/call_queue.hpp"
#include "serve/worker_pool.hpp"

namespace manyworlds::inline v0::detail {

/// The shared part of a dispatcher: brings its calls to its workers. The dispatcher, its
/// calls and the tasks that serve hold it, so that they may end in any order. Thread:
/// one reactor.
class dispatch_core final {
 public:
  explicit dispatch_core(dispatch_options options) noexcept;
  ~dispatch_core();

  [[nodiscard]] const dispatch_options& options() const noexcept { return options_; }
  /// Returns the caller's executor. Throws if it is not always the same.
  executor& enter();
  /// Returns a call's number as it is on the wire.
  [[nodiscard]] std::uint64_t wire_id(const call_state& c, world& w);

  // --- calls
  [[nodiscard]] std::uint64_t next_number() noexcept { return ++numbers_; }
  /// Gives the call to a worker or queues it. Throws the error that ends it at once.
  void admit(call_state& c);
  /// Queues a call in its old place: its worker was lost, or is suspect.
  void queue_again(call_state& c);
  /// Queues a call without offering it.
  void enqueue(call_state& c);
  /// Removes a call that waits no longer. Precondition: it is in the queue.
  void forget(call_state& c) noexcept;
  [[nodiscard]] std::size_t queued() const noexcept { return queue_.size(); }
  void note_end(const failure& f) noexcept;
  /// Returns the name of a call in errors: "17 of decode".
  [[nodiscard]] std::string name_of_call(std::uint64_t number) const;

  // --- counted
  void note_answered_by_another() noexcept;
  void note_late_answer(world& w) noexcept;
  void note_given_back(world& w) noexcept;
  [[nodiscard]] const dispatch_counters& counters() const noexcept { return counters_; }

  // --- workers
  [[nodiscard]] worker_pool& workers() noexcept { return workers_; }
  /// Removes a worker. Its calls go to others, or fail.
  void remove(client_session& session) noexcept;
  /// Offers the queued calls again: a worker may take calls, or none may any longer.
  void note_membership() noexcept;
  /// Offers the queued calls again: a worker has a free slot, or another load.
  void note_room() noexcept;

  /// Begins the runtime's drain: no new calls are taken, and the workers are left when
  /// no call is open.
  void begin_drain() noexcept;
  /// Ends all calls and servings: the dispatcher is gone.
  void close() noexcept;
  [[nodiscard]] bool is_closed() const noexcept { return is_closed_; }

 private:
  /// Gives waiting calls to the workers that have room; the rest of many follows in the
  /// next turns.
  void distribute() noexcept;
  void go_on_offering() noexcept;
  /// Returns true if the call has a worker now. Throws what its pick throws.
  bool offer(call_state& c);
  [[nodiscard]] bool offer(call_state& c, worker_choice& among);
  void ask_again_for_suspects() noexcept;
  /// Returns whether the call may be given to another worker beside those that have it.
  [[nodiscard]] bool may_ask_again(const call_state& c) noexcept;
  void end_drained_sessions() noexcept;
  [[nodiscard]] serving_tally* tally() const noexcept;
  [[nodiscard]] failure no_worker_left() const;
  /// Ends the calls that have waited for longer than the patience while no worker was
  /// there.
  void end_overdue_calls() noexcept;
  void set_timer() noexcept;
  void timer_expired() noexcept;

  const dispatch_options options_;
  executor* home_ = nullptr;
  std::uint64_t numbers_ = 0;
  std::uint64_t first_wire_id_ = 0;
  worker_pool workers_;
  call_queue queue_;
  /// Picks that were asked since the timer expired last.
  int picks_ = 0;
  member_timer<&dispatch_core::timer_expired> timer_{*this};
  /// Checks the workers as long as calls wait for a first reply.
  member_timer<&dispatch_core::ask_again_for_suspects> suspicion_timer_{*this};
  /// Number of calls that may be asked twice; answered calls refill it in fractions.
  double budget_;
  dispatch_counters counters_;
  /// How the last worker that was lost ended.
  std::string last_loss_;
  bool is_distributing_ = false;
  bool is_draining_ = false;
  bool is_closed_ = false;
};

}  // namespace manyworlds::inline v0::detail
