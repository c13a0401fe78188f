// Shrink protocol: the survivors of a broken world find out which members survive and
// form its successor, without the store.
//
// Each survivor calls all members of the view that it shrinks, its *base*. The lowest
// caller waits until every other member has called, is known to be dead, or has been
// silent for its limit. A member that lives and does not call is waited for, for half
// of the given time. The lowest caller then proposes a view of the callers, and the
// formation does the rest: connect, ready, commit. If the lowest caller falls silent or
// dies, the next one does the same.
//
// Why two worlds cannot go on from one base:
// - A view is proposed, and committed first, by its lowest member. A member that has
//   committed a successor takes *that* as its base, also when its call of `shrink()`
//   was given up (`known_successors`). So an epoch, which names the base and the
//   proposer (`epoch_of`), is committed for one view at most, no matter what else
//   fails.
// - Two views without a common member: the members that take part must outnumber the
//   silent ones, or be equal in number and have the lowest rank of all these
//   (`has_quorum`). The members of each view are silent, not dead, to those of the
//   other: both cannot outnumber.
// - Two views with a common member: a member is part of one try at a time. The vote of
//   a member that was ready for a view and did not see it committed is *pending*: the
//   others may have gone on, and do so without this member when it gives up. Before it
//   joins the next view, each member asks itself whether the members of that view have a
//   quorum in every pending vote, or include its proposer, which is ready only if it has
//   not committed (`may_join`). The proposer asks the same of the votes that it was
//   told. Those may be older, so that only saves tries.
// - Not covered: the dead are not weighed, though a dead member may have gone on with
//   others before it died. If two of five form a successor with a third, which dies,
//   then the two others go on as well, if they had reached the third alone.
// - Not covered: two members that reach the proposer and not each other. They are
//   proposed together, and each proposal fails, until the time is over; the failure
//   names them.
// - A member that was left out hears so from any member that has gone on (`gone_on`). A
//   member that was only not told of the commit takes the committed view as its base
//   (`succeeded`).
// A member is dead if the kernel says so; or if it has ended its link and its address
// refuses or belongs to another process (either alone may be the network's doing); or
// if it says that it never takes part, which a member that has gone on never says. With
// that it tells its pending votes.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "link/endpoint.hpp"
#include "manyworlds/coro/event.hpp"
#include "manyworlds/coro/scope.hpp"
#include "manyworlds/coro/task.hpp"
#include "manyworlds/detail/assertion.hpp"
#include "world/control_message.hpp"
#include "world/world_core.hpp"

namespace manyworlds::inline v0::detail {

class world_router;

/// One survivor's part of the protocol. Thread: the service reactor.
class shrink_protocol {
 public:
  /// Precondition: `broken` was formed and is drained.
  explicit shrink_protocol(std::shared_ptr<world_core> broken);
  ~shrink_protocol();
  shrink_protocol(const shrink_protocol&) = delete;
  shrink_protocol& operator=(const shrink_protocol&) = delete;

  /// Returns the successor, which is up. Errors: world_error `expelled` if others have
  /// gone on without this member, `not_joined` naming the awaited member when
  /// `options.form` is over, `runtime_stopped`, `invalid_argument`.
  [[nodiscard]] task<std::shared_ptr<world_core>> run();

  // Called by the world router.
  [[nodiscard]] std::uint64_t base_id() const noexcept { return base_.id; }
  void take(const std::shared_ptr<link>& from, const control_message& message);
  /// Takes a rollback or a break of a view that was proposed and is not looked at yet.
  void overhear(const control_message& message, const incarnation& speaker) noexcept;
  void note_news() noexcept { news_.set(); }

  /// Returns the first epoch above `highest` that `proposer`, as a rank in the base,
  /// may give.
  [[nodiscard]] static std::uint64_t epoch_of(const world_view& base, rank_t proposer,
                                              std::uint64_t highest) noexcept;

 private:
  /// The other members are polled, and asked again, once in this time.
  static constexpr duration poll_interval = std::chrono::milliseconds(50);
  /// The kernel of a process that is just ending may swallow a first dial, which is
  /// repeated after a second.
  static constexpr duration first_limit = std::chrono::milliseconds(100);
  static constexpr duration answer_limit = std::chrono::seconds(1);
  static constexpr duration retry_pause = std::chrono::milliseconds(10);
  /// An epoch that is further ahead than this is a mistake: taking it would use up the
  /// numbers.
  static constexpr std::uint64_t most_ahead = std::uint64_t{1} << 32;
  static_assert(poll_interval < answer_limit && first_limit < answer_limit);

  struct survivor {
    link_hold way;
    std::shared_ptr<link> last;  ///< the link before `way`, or the one of the base
    bool is_sought = false;
    bool was_sought = false;
    bool is_dead = false;
    bool has_called = false;
    std::uint64_t last_epoch = 0;
    time_point wanted{};  ///< its call was forgotten then, and is awaited again
    time_point heard{};
    time_point asked{};
  };

  [[nodiscard]] task<void> agree();
  [[nodiscard]] task<void> decide();
  [[nodiscard]] task<void> next_news();
  /// Begins again from a committed base. `core` committed it here; it is null if other
  /// members have said so.
  void begin_from(world_view base, std::shared_ptr<world_core> core);
  void meet_survivors();
  [[nodiscard]] survivor& at(rank_t rank) noexcept {
    MW_ASSERT(rank >= 0 && static_cast<std::size_t>(rank) < survivors_.size(),
              "a survivor has a rank in the base");
    return survivors_[static_cast<std::size_t>(rank)];
  }

  // Finding the survivors.
  void poll_survivors();
  [[nodiscard]] task<void> seek(std::uint64_t base, rank_t rank);
  void call(survivor& s, bool asks);
  /// Forgets its call: what it said no longer holds.
  void forget_call(survivor& s) noexcept;
  void call_all();
  void decline(const world_view& view);
  [[nodiscard]] bool takes_part(rank_t rank) const noexcept;
  [[nodiscard]] bool is_silent(const survivor& s) const noexcept;
  [[nodiscard]] rank_t lowest() const noexcept;
  /// Returns whether all awaited members have called; otherwise notes the missing one.
  [[nodiscard]] bool is_complete();
  [[nodiscard]] bool may_go_on();
  /// Returns whether this member can be part of it, no matter what came of the views
  /// that it agreed to before.
  [[nodiscard]] bool may_join(const world_view& view);
  /// Returns whether the members of a view, by their rank in the base, have a quorum in
  /// every view of a pending vote, or include its proposer.
  [[nodiscard]] bool has_quorum_in_votes(const std::vector<bool>& here);
  /// Returns whether those that are here outnumber the rest that may live, or are equal
  /// in number and have the lowest rank.
  [[nodiscard]] bool has_quorum(const std::vector<rank_t>& among,
                                const std::vector<bool>& here);
  void take_call(survivor& s, const survivor_message& message);
  void take_status(rank_t from, const status_message& message);
  [[nodiscard]] bool is_successor(const world_view& view) const noexcept;
  /// Returns the last epoch of its name, bounded by what can be true.
  [[nodiscard]] std::uint64_t last_epoch() const;

  // Trying a view.
  [[nodiscard]] world_view next_view();
  /// Tries to form the view. True if it is up.
  [[nodiscard]] task<bool> attempt(const world_view& view);
  /// Ends the last try, which may have been committed here and broken since.
  [[nodiscard]] task<void> conclude();
  void give_up_on_lost(const world_view& view);
  [[nodiscard]] bool is_overtaken(const world_view& view) const noexcept;
  void vote_for(const world_view& view);
  /// Adds a vote that no other member can be asked for again. If there is no room, it
  /// notes that there are more.
  void keep_vote(std::vector<rank_t> ranks);
  void add_vote(std::vector<rank_t> ranks);
  [[nodiscard]] failure late() const;

  const std::shared_ptr<world_core> broken_;
  runtime_core& runtime_;
  world_router& router_;
  reactor& service_;
  time_point begun_;  ///< the survivors of this base are listened to since then

  known_successors& known_;
  world_view& base_;
  std::vector<std::vector<rank_t>>& votes_;
  /// Set until `run` has given it away, so that giving up the call ends it.
  std::shared_ptr<world_core>& next_;
  rank_t rank_ = no_rank;
  std::vector<survivor> survivors_;
  std::optional<world_view> offer_;
  std::optional<world_view> learned_;
  std::optional<failure> verdict_;
  bool is_listed_ = false;
  scope* scope_ = nullptr;
  event news_;
  time_point last_poll_;
  time_point awake_since_{};

  // For the failure when time is up.
  rank_t waiting_rank_ = no_rank;
  std::string waiting_for_;
  std::string last_trouble_;
};

}  // namespace manyworlds::inline v0::detail
