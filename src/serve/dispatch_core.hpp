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
#include "manyworlds/observe/tally.hpp"
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
  /// One whose worker was lost, or is suspect, in its old place.
  void queue_again(call_record& c);
  /// Without offering it.
  void enqueue(call_record& c);
  /// One that waits no longer.
  void forget(call_record& c) noexcept;
  [[nodiscard]] std::size_t queued() const noexcept { return queue_.size(); }
  void note_end(const failure& f) noexcept;
  /// "17 of decode"
  [[nodiscard]] std::string name_of_call(std::uint64_t number) const;

  // --- counted
  void note_answered_by_another() noexcept;
  void note_late_answer(world& w) noexcept;
  void note_given_back(world& w) noexcept;
  [[nodiscard]] const dispatch_counters& counters() const noexcept { return counters_; }

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

  /// The runtime drains: no new calls, and the workers are left when no call is.
  void begin_drain() noexcept;
  /// The dispatcher is gone.
  void close() noexcept;
  [[nodiscard]] bool is_closed() const noexcept { return is_closed_; }

 private:
  using queue = std::map<std::uint64_t, call_record*>;
  /// What `pick` is shown, and whom it shows.
  struct choice {
    std::vector<worker_status> shown;
    std::vector<worker_link*> links;

    void add(worker_link& link);
    void clear() noexcept;
  };
  /// Looks at the workers as long as calls wait for a first reply.
  struct suspicion_timer final : timer {
    explicit suspicion_timer(dispatch_core& c) noexcept
        : timer([](timer& t) noexcept {
            static_cast<suspicion_timer&>(t).core.ask_again_for_suspects();
          }),
          core(c) {}
    dispatch_core& core;
  };

  /// Gives what waits to those that have room; the rest of many in the next turns.
  void distribute() noexcept;
  void go_on_offering() noexcept;
  /// True if it has a worker now. Throws what its pick throws.
  bool offer(call_record& c);
  [[nodiscard]] bool offer(call_record& c, choice& among);
  void look_at_candidates();
  /// Workers that were heard of just now and have not had the call.
  [[nodiscard]] choice others_than_its_own(const call_record& c) const;
  void ask_again_for_suspects() noexcept;
  /// Whether it may be asked of another worker beside those that have it.
  [[nodiscard]] bool may_ask_again(const call_record& c) noexcept;
  /// So many workers are silent, or were and have not all been heard since, that each of
  /// them can hardly be stopped by itself.
  [[nodiscard]] bool looks_frozen() noexcept;
  void end_drained_links() noexcept;
  [[nodiscard]] serving_tally* tally() const noexcept;
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
  choice candidates_;
  suspicion_timer suspicion_timer_{*this};
  /// Calls that may be asked twice.
  double budget_;
  dispatch_counters counters_;
  /// How the last worker that was lost ended.
  std::string last_loss_;
  bool is_distributing_ = false;
  bool is_frozen_ = false;
  bool is_draining_ = false;
  bool is_closed_ = false;
};

}  // namespace manyworlds::inline v0
