// Dispatch core: the workers of one dispatcher, and the calls that wait for one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "call_record.hpp"
#include "manyworlds/coro/executor.hpp"
#include "manyworlds/serve/dispatcher.hpp"

namespace manyworlds::inline v0 {

class worker_link;

/// Shared by the dispatcher, its calls and those who serve, so that they may end in any
/// order. On one reactor.
class dispatch_core final : public std::enable_shared_from_this<dispatch_core>,
                            private timer {
 public:
  explicit dispatch_core(dispatch_options options) noexcept;
  ~dispatch_core();

  [[nodiscard]] const dispatch_options& options() const noexcept { return options_; }
  /// The caller's executor, which is always the same. Throws otherwise.
  executor& enter();
  /// What a call's number is on the wire.
  [[nodiscard]] std::uint64_t wire_id(const call_record& c, world& w);

  // --- calls
  [[nodiscard]] std::uint64_t next_number() noexcept { return ++numbers_; }
  /// Gives it to a worker or queues it; throws what ends it at once.
  void admit(call_record& c);
  /// One whose worker was lost, in its old place.
  void queue_again(call_record& c);
  /// One that waits no longer.
  void forget(call_record& c) noexcept;
  [[nodiscard]] std::size_t queued() const noexcept { return queue_.size(); }

  // --- workers
  [[nodiscard]] worker_id next_worker() noexcept { return worker_id{++workers_}; }
  void add(worker_link& link) { links_.push_back(&link); }
  /// Its calls go to others, or fail.
  void remove(worker_link& link) noexcept;
  [[nodiscard]] worker_link* find(worker_id id) const noexcept;
  [[nodiscard]] std::vector<worker_status> workers() const;
  /// A worker may take calls, or none may any more.
  void note_membership() noexcept;
  /// A worker has a free slot, or another load.
  void note_room() noexcept;

  /// The dispatcher is gone.
  void close() noexcept;
  [[nodiscard]] bool is_closed() const noexcept { return is_closed_; }

 private:
  using queue = std::map<std::uint64_t, call_record*>;

  void enqueue(call_record& c);
  /// Gives what waits to those that have room; the rest of many in the next turns.
  void distribute() noexcept;
  void go_on_offering() noexcept;
  /// True if it has a worker now. Throws what its pick throws.
  bool offer(call_record& c);
  void look_at_candidates();
  [[nodiscard]] bool has_room() const noexcept;
  [[nodiscard]] bool is_alone() const noexcept;
  [[nodiscard]] bool waits_for_suspects() const noexcept;
  [[nodiscard]] failure nobody_left() const;
  void end_lonely() noexcept;
  void set_timer() noexcept;

  const dispatch_options options_;
  executor* home_ = nullptr;
  std::uint64_t numbers_ = 0;
  std::uint64_t workers_ = 0;
  std::uint64_t first_wire_id_ = 0;
  std::vector<worker_link*> links_;
  queue queue_;
  /// Of the queue, how many are still to be offered since something has changed last, and
  /// the number from which on.
  std::size_t to_offer_ = 0;
  std::uint64_t next_offered_ = 0;
  /// Asked since the timer was due last.
  int picks_ = 0;
  /// What `pick` is shown, and whom it shows.
  std::vector<worker_status> shown_;
  std::vector<worker_link*> candidates_;
  /// How the last worker that was lost ended.
  std::string last_loss_;
  bool is_distributing_ = false;
  bool is_closed_ = false;
};

}  // namespace manyworlds::inline v0
