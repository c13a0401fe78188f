// World core: the state of one world in one process. The handle `world` refers to it.
// It belongs to the runtime until its last operation has ended.
// Its state and first cause are in `world_life`, what it knows of the others in
// `world_members`.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "backend/backend.hpp"
#include "link/data_channel.hpp"
#include "link/endpoint.hpp"
#include "manyworlds/detail/member_work.hpp"
#include "manyworlds/detail/notice.hpp"
#include "manyworlds/failure.hpp"
#include "manyworlds/store/store.hpp"
#include "manyworlds/world/options.hpp"
#include "manyworlds/world/view.hpp"
#include "manyworlds/world/world_state.hpp"
#include "observe/tally.hpp"
#include "store/store_gate.hpp"
#include "world/pending_operations.hpp"
#include "world/successor_view.hpp"
#include "world/world_life.hpp"
#include "world/world_members.hpp"

namespace manyworlds::inline v0::detail {

class formation;
class operation_awaiter;
class runtime_core;

/// What one formation hands over when it is committed.
struct formed_parts {
  world_view view;
  std::vector<link_hold> links;
  std::vector<data_channel> channels;
};

/// Ties the life of a world to its members, its backend and its operations. Thread: any
/// for the state and the notices. The backend and the pending operations belong to the
/// user reactor, the members and the registration to the service reactor.
class world_core final : public std::enable_shared_from_this<world_core>,
                         private backend_listener {
 public:
  world_core(std::shared_ptr<runtime_core> rt, store& st, world_options options,
             std::optional<successor_view> inherited = std::nullopt);
  ~world_core();
  world_core(const world_core&) = delete;
  world_core& operator=(const world_core&) = delete;

  // --- any thread
  [[nodiscard]] const world_options& options() const noexcept { return options_; }
  [[nodiscard]] std::uint64_t instance() const noexcept { return instance_; }
  [[nodiscard]] runtime_core& runtime() const noexcept { return *runtime_; }
  [[nodiscard]] std::shared_ptr<runtime_core> runtime_ptr() const noexcept {
    return runtime_;
  }
  [[nodiscard]] store& rendezvous() const noexcept { return *store_; }
  /// Returns the gate through which the forming uses the store.
  [[nodiscard]] store_gate& gate() noexcept { return gate_; }

  [[nodiscard]] world_life& life() noexcept { return life_; }
  [[nodiscard]] world_state state() const noexcept { return life_.state(); }
  [[nodiscard]] std::uint64_t epoch() const noexcept { return life_.epoch(); }
  [[nodiscard]] failure first_failure() const { return life_.first_failure(); }
  [[nodiscard]] notice& decided() noexcept { return life_.decided(); }
  [[nodiscard]] notice& over() noexcept { return life_.over(); }
  [[nodiscard]] notice& drained() noexcept { return life_.drained(); }

  [[nodiscard]] world_members& members() noexcept { return members_; }
  [[nodiscard]] const world_members& members() const noexcept { return members_; }
  [[nodiscard]] const world_view& view() const noexcept { return members_.view(); }

  /// Makes a failure of this world, with the member, the peer process and the
  /// operation.
  [[nodiscard]] failure describe_failure(enum cause why, rank_t rank, operation_kind in,
                                         std::string detail) const;

  /// Returns what a world of survivors inherits; null for a world that forms through
  /// the store.
  [[nodiscard]] const successor_view* inherits() const noexcept {
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

  /// Queues work there. False if the runtime has ended: the work does not run.
  bool on_reactor(keeping_work& w) noexcept;
  void on_service(keeping_work& w) noexcept;

  // --- the user reactor
  void start(operation_awaiter& op) noexcept;
  /// Does a message that needs no wait. Returns false if it does, or must not be done
  /// here and now; then nothing has happened. Thread: any.
  [[nodiscard]] bool try_at_once(operation_awaiter& op) noexcept;
  /// See backend::withdraw.
  bool withdraw(operation_awaiter& op) noexcept;
  /// See world::discard. Precondition: the arguments were checked. Thread: any.
  void discard(rank_t peer, lane on);
  /// Returns whether `leave()` was called here: what closes from then on closes by
  /// that.
  [[nodiscard]] bool has_left_itself() const noexcept { return we_left_; }
  /// Takes an operation off the list, if it is there, and records how it ended.
  void remove_pending(operation_awaiter& op, enum cause ended_by) noexcept;

  /// Breaks the world if a task was cancelled in one of its collectives: that cannot be
  /// taken back, and the task's runtime ends.
  void break_for_cancelled_collectives() noexcept;
  /// Does the same for the collective `op`.
  void break_for_the_end_of(const operation& op) noexcept;
  /// Breaks the world since the deadline of the collective `op` has passed. Names the
  /// ranks that have not entered what is under way, as far as they are known.
  void break_for_the_deadline_of(const operation& op) noexcept;

  /// Returns how many collectives this member has begun. Thread: the user reactor.
  [[nodiscard]] std::uint64_t collectives_begun() const noexcept {
    return collectives_begun_;
  }

  /// Returns the device of a world that is up; null if it has none.
  [[nodiscard]] device_control* device() const noexcept {
    return backend_ ? backend_->device() : nullptr;
  }

  // --- the service reactor
  /// Does `begin_forming`, and the forming is under way when it returns.
  void begin_inheriting();
  /// Keeps the device that the formation has opened for the backend.
  void keep_device(std::shared_ptr<void> opened) noexcept { device_ = std::move(opened); }
  /// Takes the parts of the committed formation. The world is up when the reactor has
  /// taken them.
  void take_formed(formed_parts parts);
  /// Examines the silence of the members, and of this reactor while the world is not up.
  /// Returns when it must be called again at the latest.
  time_point examine_silence(time_point now) noexcept;
  /// Returns what is known of its successors, of the one protocol that shrinks it.
  [[nodiscard]] known_successors& successors() noexcept { return successors_; }

  // --- for dumps
  /// Thread: the user reactor for `note_error`, any to read.
  [[nodiscard]] world_tally& tally() noexcept { return tally_; }
  [[nodiscard]] const world_tally& tally() const noexcept { return tally_; }
  /// Thread: any, as each of them says.
  [[nodiscard]] const pending_operations& pending() const noexcept { return pending_; }
  /// Returns what moves its data; null before it is up and after its end. Thread: the
  /// user reactor.
  [[nodiscard]] backend* moved_by() const noexcept { return backend_.get(); }

 private:
  // backend_listener
  void connection_ended(rank_t peer, int error) noexcept override;
  void must_break(rank_t peer, enum cause why, std::string detail) noexcept override;
  void peer_left(rank_t peer) noexcept override;
  void heard(rank_t peer) noexcept override;
  void log(log_level level, std::string line) noexcept override;

  // In the order of a world's life.
  void form() noexcept;   // service
  void go_up() noexcept;  // reactor
  [[nodiscard]] std::unique_ptr<backend> make_backend();
  void leave() noexcept;         // reactor
  void left() noexcept;          // reactor
  void announce() noexcept;      // service
  void tell_members() noexcept;  // service
  void tear_down() noexcept;     // reactor
  void quiet() noexcept;         // reactor
  void end_pending() noexcept;   // reactor
  void unregister() noexcept;    // service
  void tell_drained() noexcept;  // service
  /// Called if all have formed the world and this reactor did not take it up in time.
  void break_as_not_turned(time_point now) noexcept;  // service

  const std::shared_ptr<runtime_core> runtime_;
  store* const store_;
  store_gate gate_;
  const world_options options_;
  const std::optional<successor_view> inherited_;
  const std::uint64_t instance_;
  world_life life_;
  world_members members_;
  world_tally tally_;

  std::atomic<bool> asked_to_form_{false};
  std::atomic<bool> asked_to_leave_{false};
  std::atomic<bool> takes_no_part_{false};

  // Written by the service before the step that lets the reactor read it.
  std::vector<data_channel> channels_;

  // The service reactor's.
  known_successors successors_;
  std::unique_ptr<formation> formation_;
  std::shared_ptr<void> device_;  ///< opened by the formation, taken by the backend
  bool unregistered_ = false;
  time_point forming_since_{};
  time_point committed_at_{};

  // The user reactor's.
  std::unique_ptr<backend> backend_;
  pending_operations pending_;
  bool we_left_ = false;
  std::uint64_t collectives_begun_ = 0;

  kept_member_work<&world_core::form> form_step_{*this};
  kept_member_work<&world_core::go_up> up_step_{*this};
  kept_member_work<&world_core::leave> leave_step_{*this};
  kept_member_work<&world_core::left> left_step_{*this};
  kept_member_work<&world_core::announce> announce_step_{*this};
  kept_member_work<&world_core::tear_down> tear_down_step_{*this};
  kept_member_work<&world_core::quiet> quiet_step_{*this};
  kept_member_work<&world_core::unregister> unregister_step_{*this};
};

}  // namespace manyworlds::inline v0::detail
