// World core: the state of one world in one process. The handle `world` refers to it.
// It belongs to the runtime until its last operation has ended.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "backend/backend.hpp"
#include "link/data_channel.hpp"
#include "link/endpoint.hpp"
#include "manyworlds/detail/channel_waiters.hpp"
#include "manyworlds/detail/notice.hpp"
#include "manyworlds/failure.hpp"
#include "manyworlds/store/store.hpp"
#include "manyworlds/world/options.hpp"
#include "manyworlds/world/view.hpp"
#include "manyworlds/world/world_event.hpp"
#include "manyworlds/world/world_state.hpp"
#include "observe/report.hpp"
#include "world/store_gate.hpp"
#include "world/succession.hpp"

namespace manyworlds::inline v0::detail {

class formation;
class operation_awaiter;
class runtime_core;

/// The table of allowed steps: returns whether a world may enter `next` from `now`.
[[nodiscard]] constexpr bool may_follow(world_state now, world_state next) noexcept {
  switch (now) {
    case world_state::described:
      return next == world_state::forming || next == world_state::closed ||
             next == world_state::broken;
    case world_state::forming:
      return next == world_state::up || next == world_state::broken;
    case world_state::up:
      return next == world_state::closing || next == world_state::closed ||
             next == world_state::broken;
    case world_state::closing:
      return next == world_state::closed || next == world_state::broken;
    case world_state::closed:
    case world_state::broken:
      break;
  }
  return false;
}

/// What one formation hands over when it is committed.
struct formed_parts {
  world_view view;
  std::vector<link_hold> links;
  std::vector<data_channel> channels;
};

/// Thread: any for `state`, `first_failure` and the notices. The backend and the list
/// of pending operations belong to the user reactor, links and registration to the
/// service reactor. A break is decided under one mutex, so that the first cause wins on
/// whichever thread it is noticed.
class world_core final : public std::enable_shared_from_this<world_core>,
                         private backend_events {
 public:
  world_core(std::shared_ptr<runtime_core> rt, store& st, world_options options,
             std::optional<succession> inherited = std::nullopt);
  ~world_core();
  world_core(const world_core&) = delete;
  world_core& operator=(const world_core&) = delete;

  // --- any thread
  [[nodiscard]] const world_options& options() const noexcept { return options_; }
  [[nodiscard]] std::uint64_t instance() const noexcept { return instance_; }
  [[nodiscard]] world_state state() const noexcept {
    return state_.load(std::memory_order_acquire);
  }
  [[nodiscard]] std::uint64_t epoch() const noexcept {
    return epoch_.load(std::memory_order_acquire);
  }
  [[nodiscard]] bool is_suspect(rank_t rank) const noexcept;
  /// Returns how long a member has been silent. Precondition: the world was formed.
  [[nodiscard]] duration silence_of(rank_t rank) const noexcept;
  /// Returns the first cause, if the world is broken or closed.
  [[nodiscard]] failure first_failure() const;
  /// Makes a failure of this world, with the member, the peer process and the
  /// operation.
  [[nodiscard]] failure describe_failure(enum cause why, rank_t rank, operation_kind in,
                                         std::string detail) const;
  [[nodiscard]] runtime_core& runtime() const noexcept { return *runtime_; }
  [[nodiscard]] std::shared_ptr<runtime_core> runtime_ptr() const noexcept {
    return runtime_;
  }
  [[nodiscard]] store& rendezvous() const noexcept { return *store_; }
  /// Returns the gate through which the forming uses the store.
  [[nodiscard]] store_gate& gate() noexcept { return gate_; }

  /// Returns what a world of survivors inherits; null for a world that forms through
  /// the store.
  [[nodiscard]] const succession* inherits() const noexcept {
    return inherited_ ? &*inherited_ : nullptr;
  }
  /// Returns the rank under which it is found in the store.
  [[nodiscard]] rank_t home_rank() const noexcept {
    return inherited_ ? inherited_->home_rank : options_.rank;
  }
  [[nodiscard]] rank_t home_size() const noexcept {
    return inherited_ ? inherited_->home_size : options_.size;
  }
  /// Decides, for good, that no further successor is shrunk from this world here.
  void take_no_part() noexcept { takes_no_part_.store(true); }
  /// Returns whether the user may still call `shrink()`: then the other survivors wait.
  [[nodiscard]] bool may_take_part() const noexcept {
    return !takes_no_part_.load() && state() != world_state::closed;
  }

  /// Starts forming; only the first call does.
  void begin_forming();
  /// Leaves in order; `over()` is set when done.
  void begin_leaving();
  /// Breaks the world unless it is over already. True for the call that did it.
  bool break_with(failure f, rank_t reported_by = no_rank);
  /// Called when the last handle is dropped: releases the store and breaks a live
  /// world.
  void abandon() noexcept;

  /// Set when the world is formed, or broken before it was.
  [[nodiscard]] notice& decided() noexcept { return decided_; }
  /// Set when the world is broken or closed.
  [[nodiscard]] notice& over() noexcept { return over_; }
  /// Set when nothing of the world touches any buffer and its resources are free.
  [[nodiscard]] notice& drained() noexcept { return drained_; }

  // --- the user reactor
  void start(operation_awaiter& op) noexcept;
  /// See backend::withdraw.
  bool withdraw(operation_awaiter& op) noexcept;
  /// See world::discard. Precondition: the arguments were checked. Thread: any.
  void discard(rank_t peer, lane on);
  /// Returns whether `leave()` was called here: what closes from then on closes by
  /// that.
  [[nodiscard]] bool has_left_itself() const noexcept { return we_left_; }
  /// Takes an operation off the list, if it is there, and records how it ended.
  void remove_pending(operation& op, enum cause ended_by) noexcept;

  /// Breaks the world if a task was cancelled in one of its collectives: that cannot be
  /// taken back, and the task's runtime ends.
  void break_for_cancelled_collectives() noexcept;
  /// Does the same for the collective `op`.
  void break_for_the_end_of(const operation& op) noexcept;

  /// Returns the device of a world that is up; null if it has none.
  [[nodiscard]] device_control* device() const noexcept {
    return backend_ ? backend_->device() : nullptr;
  }

  // --- the service reactor
  /// Does `begin_forming`, and the forming is under way when it returns.
  void begin_inheriting();
  /// Takes the parts of the committed formation. The world is up when the reactor has
  /// taken them.
  void take_formed(formed_parts parts);
  [[nodiscard]] const world_view& view() const noexcept { return view_; }
  [[nodiscard]] const std::vector<std::shared_ptr<link>>& links() const noexcept {
    return links_;
  }
  /// Suspects silent members and breaks the world by their silence. Returns when it
  /// must look again at the latest: a sign of life only makes that later.
  time_point examine_silence(time_point now) noexcept;
  /// Breaks the world if one of its members is at the other end of this link.
  void link_lost(const link& l, enum cause why, const std::string& detail) noexcept;
  [[nodiscard]] bool has_left(rank_t rank) const noexcept;
  /// Returns the records of the one agreement that shrinks it.
  [[nodiscard]] known_successors& successors() noexcept { return successors_; }

  // --- dumps
  /// Thread: any, also while the reactor is stuck.
  [[nodiscard]] world_report report(time_point now) const;
  /// Thread: the user reactor.
  [[nodiscard]] transfer_report report_transfers() const;
  /// Thread: the user reactor for `note_error`.
  [[nodiscard]] world_tally& tally() noexcept { return tally_; }

 private:
  friend class formation;

  /// A step is a piece of work that keeps the core alive while it is queued.
  struct step final : work {
    using function = void (world_core::*)() noexcept;
    step(world_core& core, function f) noexcept
        : work([](work& w) noexcept {
            auto& self = static_cast<step&>(w);
            const auto alive = std::move(self.keeps);
            (self.core_.*self.function_)();
          }),
          core_(core),
          function_(f) {}
    world_core& core_;
    function function_;
    std::shared_ptr<world_core> keeps;
  };

  // backend_events
  void connection_ended(rank_t peer, int error) noexcept override;
  void must_break(rank_t peer, enum cause why, std::string detail) noexcept override;
  void peer_left(rank_t peer) noexcept override;
  void heard(rank_t peer) noexcept override;
  void log(log_level level, std::string line) noexcept override;

  /// Queues a step there. False if the runtime has ended: the step is not taken.
  bool on_reactor(step& s) noexcept;
  void on_service(step& s) noexcept;
  /// Enters the next state. Precondition: the mutex is held.
  void enter(world_state next) noexcept;

  /// Tells the runtime's subscribers of an event. Waiters are resumed from `told` when
  /// the mutex is released. Precondition: the mutex is held, so that subscribers see
  /// the states of a world in their order.
  void tell_event(channel_waiters& told, world_event_kind kind, rank_t about,
                  enum cause why = cause::none) const noexcept;

  // The steps, in the order of a world's life.
  void form() noexcept;   // service
  void go_up() noexcept;  // reactor
  [[nodiscard]] std::unique_ptr<backend> make_backend();
  void note_departures() noexcept;  // service
  void leave() noexcept;            // reactor
  void left() noexcept;             // reactor
  void tear_down() noexcept;        // reactor
  void quiet() noexcept;            // reactor
  void announce() noexcept;         // service
  void tell_members() noexcept;     // service
  void unregister() noexcept;       // service
  void tell_drained() noexcept;     // service
  /// Called if all have formed the world and this reactor did not take it up in time.
  void break_as_not_turned(time_point now) noexcept;  // service

  void tell_service_of(rank_t departed, std::optional<int> connection_error) noexcept;
  void end_pending() noexcept;
  [[nodiscard]] bool left_by_all() const noexcept;

  const std::shared_ptr<runtime_core> runtime_;
  store* const store_;
  store_gate gate_;
  const world_options options_;
  const std::optional<succession> inherited_;
  const std::uint64_t instance_;

  std::atomic<world_state> state_{world_state::described};
  std::atomic<std::uint64_t> epoch_{0};
  std::atomic<bool> asked_to_form_{false};
  std::atomic<bool> asked_to_leave_{false};
  std::atomic<bool> takes_no_part_{false};
  std::vector<std::atomic<bool>> suspects_;
  mutable std::mutex mutex_;
  failure failure_;                                        // guarded by mutex_
  rank_t reported_by_ = no_rank;                           // guarded by mutex_
  std::vector<rank_t> departed_;                           // guarded by mutex_
  std::vector<std::pair<rank_t, int>> ended_connections_;  // guarded by mutex_
  bool departures_queued_ = false;                         // guarded by mutex_
  world_tally tally_;
  notice decided_;
  notice over_;
  notice drained_;

  // Written by the service before the step that lets the reactor read them.
  world_view view_;
  std::vector<std::shared_ptr<link>> links_;
  std::vector<bool> over_memory_;
  formed_parts parts_;

  // The service reactor's.
  std::vector<link_hold> holds_;
  std::vector<bool> has_left_;
  known_successors successors_;
  std::unique_ptr<formation> formation_;
  std::shared_ptr<void> device_;  ///< opened by the formation, taken by the backend
  bool unregistered_ = false;
  time_point forming_since_{};
  time_point committed_at_{};

  // The user reactor's.
  std::unique_ptr<backend> backend_;
  operation* pending_ = nullptr;  // guarded by the ledger's mutex for dumps
  std::vector<bool> left_;
  bool we_left_ = false;

  step form_step_{*this, &world_core::form};
  step up_step_{*this, &world_core::go_up};
  step departures_step_{*this, &world_core::note_departures};
  step leave_step_{*this, &world_core::leave};
  step left_step_{*this, &world_core::left};
  step tear_down_step_{*this, &world_core::tear_down};
  step quiet_step_{*this, &world_core::quiet};
  step announce_step_{*this, &world_core::announce};
  step unregister_step_{*this, &world_core::unregister};
};

}  // namespace manyworlds::inline v0::detail
