// Collectives: carries out those of one world on host memory, one after the other.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>

#include "host/collective_tracker.hpp"
#include "host/page_agreement.hpp"
#include "host/page_collective.hpp"
#include "host/schedule.hpp"
#include "manyworlds/coro/task.hpp"

namespace manyworlds::inline v0::detail::host {

/// Numbers the collectives that this member starts, and carries them out in that order.
/// Members that disagree about number n learn it from the first message between them.
/// If each waits for the other's message they learn it by asking (`collective_tracker`).
///
/// A member that only gives, such as the root of a broadcast, learns nothing from its
/// own messages. So a member also looks at each message for which it does not wait: on
/// arrival if the collective of its number was begun, otherwise when that begins. This
/// finds every disagreement about the root by the first contradicting message, and
/// sends no further one:
/// - Broadcast, scatter: a member that takes itself for the root sends down a tree that
///   spans all. The first member on the way with another root gets a message that
///   contradicts. If no member takes itself for the root, all wait, and ask.
/// - Gather, reduce: each member that does not take itself for the root sends towards
///   its root. A member on the way with another root gets a message that contradicts.
///   If all on the way agree, the root waits for all: either one sends elsewhere, and
///   the root asks, or all agree.
///
/// A root that only gave may have gone on by then. Its world breaks all the same, by
/// the member that found the disagreement.
class collectives final : private schedule_port {
 public:
  explicit collectives(core& shared);
  collectives(const collectives&) = delete;
  collectives& operator=(const collectives&) = delete;
  ~collectives();

  /// Notes the link to a member of this host. Called before anything else.
  void add_link(rank_t peer, std::shared_ptr<shm::shared_link> link, unsigned slot) {
    agreement_.add_link(peer, std::move(link), slot);
  }
  void enter(operation& op);
  /// Handles a frame about a collective. Returns null, or what is wrong with it.
  const char* handle(rank_t peer, const frame& f) {
    if (f.kind != frame_kind::page) return tracker_.handle(peer, f);
    return handle_page(peer, f);
  }
  /// Called when the collective that goes through pages is done.
  void page_ended() noexcept { end_active(operation_end::done); }
  /// Called when a message of a collective has come for which no receive waits.
  void note_message(rank_t peer, collective_signature theirs) noexcept;
  /// Called when nothing more follows from that member.
  void peer_left(rank_t peer);
  /// Called when a member has entered something else than this one: the world breaks.
  void disagree(rank_t peer, std::string detail);
  /// Called when the collective of that number and all later ones cannot end: a member
  /// has left.
  void closed_from(std::uint64_t number, rank_t culprit);
  /// Returns the collective under way, for dumps.
  [[nodiscard]] std::optional<collective_status> status() const;
  /// Called when this member leaves: collectives that were not begun fail.
  void leave();
  /// Ends and sends nothing afterwards. What is in the reactor's queue still runs.
  void stop() noexcept;

 private:
  struct step final : work {
    using function = void (collectives::*)();
    step(collectives& owner, function f) noexcept;
    collectives& owner;
    function call;
    bool is_queued = false;
  };
  /// Continues when the algorithm's coroutine ends.
  struct end_of_task final : continuation {
    explicit end_of_task(collectives& owner) noexcept;
    collectives& owner;
  };

  struct choice;
  [[nodiscard]] const choice& choice_for(const collective_shape& shape) noexcept;
  [[nodiscard]] algorithm algorithm_for(const collective_shape& shape) noexcept {
    return choice_for(shape).use;
  }
  [[nodiscard]] bool may_use_pages(const collective_shape& shape, bool has_cpus) noexcept;
  [[nodiscard]] collective_signature signature_of(const collective_shape& shape,
                                                  std::uint64_t number) noexcept;
  const char* handle_page(rank_t peer, const frame& f);
  void carry_out_active();
  void go_on_held();
  void begin_next();
  [[nodiscard]] std::uint64_t first_open() const noexcept;
  [[nodiscard]] bool is_contradicted();
  void dispute_found();
  void begin(operation& op, collective_shape&& shape, algorithm use);
  void task_ended() noexcept;
  void give_up_active();
  void end_active(operation_end how) noexcept;
  void refuse(operation& op, std::string why);
  void fail_closed(operation& op, rank_t culprit) const;
  void fail_waiting(std::uint64_t from, rank_t culprit);
  [[nodiscard]] std::string closed_text(rank_t culprit) const;
  void queue(step& s) noexcept;
  /// Caches the last choice of each kind: most calls repeat the call before.
  struct choice {
    std::size_t bytes = std::numeric_limits<std::size_t>::max();
    algorithm use = algorithm::flat;
    bool is_own = false;  ///< by a rule of the runtime's own
  };
  static constexpr auto first_kind = static_cast<std::size_t>(operation_kind::barrier);
  static constexpr std::size_t kinds =
      static_cast<std::size_t>(operation_kind::all_to_all) - first_kind + 1;

  /// Returns whether all others have left: the world is over and no longer breaks.
  [[nodiscard]] bool is_alone() const;

  // schedule_port
  void start_step(operation& op) noexcept override;
  bool withdraw_step(operation& op) noexcept override;
  void step_failed() noexcept override { queue(give_up_step_); }
  void came_to_rest() noexcept override { queue(give_up_step_); }

  static constexpr std::uint64_t never = std::numeric_limits<std::uint64_t>::max();

  core& core_;
  schedule schedule_;
  collective_tracker tracker_;
  page_agreement agreement_;
  page_collective by_page_;
  std::array<choice, kinds> choices_{};
  operation_queue waiting_;
  operation* active_ = nullptr;
  task<void> task_;
  end_of_task end_of_task_{*this};
  bool task_runs_ = false;
  /// The active one waits for the answers by which its way is known.
  bool is_held_ = false;
  algorithm active_use_ = algorithm::flat;
  bool given_up_ = false;     ///< the active one was
  bool is_reported_ = false;  ///< the world was told that the active one fails
  /// The first number that cannot end, since `closed_by_` has left.
  std::uint64_t closed_from_ = never;
  rank_t closed_by_ = no_rank;
  bool stopped_ = false;
  /// Messages of collectives that were not begun here may have come.
  bool has_early_ = false;
  std::optional<contradiction> found_;
  step dispute_step_{*this, &collectives::dispute_found};
  step next_step_{*this, &collectives::begin_next};
  step give_up_step_{*this, &collectives::give_up_active};
  step held_step_{*this, &collectives::go_on_held};
};

}  // namespace manyworlds::inline v0::detail::host
