// Agreement: how the survivors of a broken world find out who they are and form its
// successor, without the store.
//
// Each survivor calls to all members of the view it shrinks, its *base*. The lowest that
// calls waits until every other member has called, is known to be dead, or has been
// silent for its limit (one that lives and does not call: for half of the time there is);
// it proposes a view of those that called, and the formation does the rest: connect,
// ready, commit. If the lowest falls silent or dies, the next does the same.
//
// Why no two worlds go on from one base:
// - A view is proposed, and committed first, by its lowest member, and a member that has
//   committed a successor has *that* for its base, also when its call of `shrink()` was
//   given up (`known_successors`). So an epoch, which names the base and the proposer
//   (`epoch_of`), is committed for one view at most, whatever else fails.
// - Two views without a common member: whoever takes part must outnumber the silent, or
//   be as many and have the lowest rank of all these (`outweighs`). Each view's members
//   are silent, not dead, to the other's: both cannot outnumber.
// - Two views with one: a member is part of one try at a time. Whoever was ready for a
//   view and did not see it committed *doubts* it: the others may have gone on, and do
//   so without this member when it gives up. Each member asks itself, before it joins the
//   next view, whether that one's members outweigh the rest of every view it doubts, or
//   have the proposer among them, who is ready only if it has not committed (`may_join`).
//   The proposer asks the same of the doubts it was told, which may be older: that spares
//   tries, no more.
// - What this does not cover: the dead are not weighed, though one may have gone on with
//   others before it died. If two of five form a successor with a third, which dies, then
//   the two others go on as well, should they have reached the third alone.
// - Nor are two members told apart that reach the proposer and not each other: they are
//   proposed together, in vain, until the time is over, and the failure names them.
// - Whoever was left out hears so from any member that has gone on (`gone_on`); whoever
//   was only not told of the commit takes the committed view for its base (`succeeded`).
// Dead is who the kernel says is, who has ended its link and whose address refuses or is
// another process's (either alone may be the network's doing), or who says that it never
// takes part, which nobody says that has gone on; what it doubts it says along with that.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "manyworlds/coro/event.hpp"
#include "manyworlds/coro/scope.hpp"
#include "manyworlds/coro/task.hpp"
#include "manyworlds/link/endpoint.hpp"
#include "manyworlds/world/control_message.hpp"
#include "manyworlds/world/world_core.hpp"

namespace manyworlds::inline v0 {

class world_directory;

/// One survivor's part. Lives on the service reactor.
class agreement {
 public:
  /// `broken` was formed and is drained.
  explicit agreement(std::shared_ptr<world_core> broken);
  ~agreement();
  agreement(const agreement&) = delete;
  agreement& operator=(const agreement&) = delete;

  /// The successor, up. Throws world_error: `expelled` if others have gone on without
  /// this member, `not_joined` naming who was waited for when `options.form` is over.
  [[nodiscard]] task<std::shared_ptr<world_core>> run();

  // What the directory brings.
  [[nodiscard]] std::uint64_t base_id() const noexcept { return base_.id; }
  void take(const std::shared_ptr<link>& from, const control_message& message);
  /// Of a view that was proposed and is not looked at yet.
  void overhear(const control_message& message, const incarnation& speaker) noexcept;
  void note_news() noexcept { news_.set(); }

  /// The first epoch above `highest` that `proposer`, as a rank in the base, may give.
  [[nodiscard]] static std::uint64_t epoch_of(const world_view& base, rank_t proposer,
                                              std::uint64_t highest) noexcept;

 private:
  /// As often as the others are looked at, and asked again.
  static constexpr duration look = std::chrono::milliseconds(50);
  /// The kernel of a process that is just ending may swallow a first dial, which is
  /// repeated after a second.
  static constexpr duration first_limit = std::chrono::milliseconds(100);
  static constexpr duration answer_limit = std::chrono::seconds(1);
  static constexpr duration retry_pause = std::chrono::milliseconds(10);
  /// Nobody has formed so many epochs: a number from beyond would use up all there are.
  static constexpr std::uint64_t most_ahead = std::uint64_t{1} << 32;

  struct survivor {
    link_hold way;
    /// The one before that, or the base's.
    std::shared_ptr<link> last;
    bool is_sought = false;
    bool was_sought = false;
    bool is_dead = false;
    bool has_called = false;
    std::uint64_t last_epoch = 0;
    /// Since when its call is wanted, again.
    time_point wanted{};
    time_point heard{};
    time_point asked{};
  };

  [[nodiscard]] task<void> agree();
  [[nodiscard]] task<void> decide();
  [[nodiscard]] task<void> next_news();
  /// `core` has committed it; null if others have said so.
  void begin_from(world_view base, std::shared_ptr<world_core> core);
  void meet_survivors();
  [[nodiscard]] survivor& at(rank_t rank) noexcept {
    return survivors_[static_cast<std::size_t>(rank)];
  }

  // Who is there.
  void look_around();
  [[nodiscard]] task<void> seek(std::uint64_t base, rank_t rank);
  void call(survivor& s, bool asks);
  /// What it said holds no longer.
  void forget_call(survivor& s) noexcept;
  void call_all();
  void decline(const world_view& view);
  [[nodiscard]] bool takes_part(rank_t rank) const noexcept;
  [[nodiscard]] bool is_silent(const survivor& s) const noexcept;
  [[nodiscard]] rank_t lowest() const noexcept;
  /// Nobody is left to wait for; notes who, otherwise.
  [[nodiscard]] bool is_complete();
  [[nodiscard]] bool may_go_on();
  /// Whether this member can be part of it, whatever came of what it agreed to before.
  [[nodiscard]] bool may_join(const world_view& view);
  /// The members of a view, by their rank in the base, against the rest of those that
  /// may be part of another.
  [[nodiscard]] bool is_beyond_doubt(const std::vector<bool>& here);
  [[nodiscard]] bool outweighs(const std::vector<rank_t>& among,
                               const std::vector<bool>& here);
  void take_call(survivor& s, const survivor_message& message);
  void take_standing(rank_t from, const standing_message& message);
  [[nodiscard]] bool is_successor(const world_view& view) const noexcept;
  /// Of its name, as far as it can be true.
  [[nodiscard]] std::uint64_t last_epoch() const;

  // What comes of it.
  [[nodiscard]] world_view next_view();
  /// True if it is up.
  [[nodiscard]] task<bool> attempt(const world_view& view);
  /// Of the last try: whether it was committed here, or elsewhere perhaps.
  [[nodiscard]] task<void> conclude();
  void give_up_on_lost(const world_view& view);
  [[nodiscard]] bool is_overtaken(const world_view& view) const noexcept;
  void doubt(const world_view& view);
  /// None of those that nobody else can be asked for is forgotten.
  void keep_doubt(std::vector<rank_t> ranks);
  void add_doubt(std::vector<rank_t> ranks);
  [[nodiscard]] failure late() const;

  const std::shared_ptr<world_core> broken_;
  runtime_core& runtime_;
  world_directory& directory_;
  reactor& service_;
  /// Since when the survivors of this base are listened to.
  time_point begun_;

  known_successors& known_;
  world_view& base_;
  std::vector<std::vector<rank_t>>& doubts_;
  /// Until `run` has given it away, so that whoever gives that up ends it.
  std::shared_ptr<world_core>& next_;
  rank_t rank_ = no_rank;
  std::vector<survivor> survivors_;
  std::optional<world_view> offer_;
  std::optional<world_view> learned_;
  std::optional<failure> verdict_;
  bool is_listed_ = false;
  scope* scope_ = nullptr;
  event news_;
  time_point last_look_;
  time_point awake_since_{};

  // For the failure when time is up.
  rank_t waiting_rank_ = no_rank;
  std::string waiting_for_;
  std::string last_trouble_;
};

}  // namespace manyworlds::inline v0
