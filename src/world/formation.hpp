// Formation: how the members of a world find each other and agree on its next epoch.
//
// Each member writes `join/<rank>` into the store. Rank 0 collects `size` of them,
// picks the epoch and a random world id, publishes the view by compare_set and proposes
// it over links. Members connect to each other and report ready; rank 0 commits. A
// failure before the commit is rolled back and the forming is tried again until the
// deadline. After the commit the store is never read.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "link/endpoint.hpp"
#include "manyworlds/coro/event.hpp"
#include "manyworlds/coro/scope.hpp"
#include "manyworlds/coro/task.hpp"
#include "world/control_message.hpp"
#include "world/world_core.hpp"

namespace manyworlds::inline v0::detail {

class world_router;

/// Forms one world at one member. Thread: the service reactor.
///
/// The secret of a world is that of its rank 0. A process that cannot prove it is
/// ignored: a process that can may overwrite its record. It makes no other formation
/// fail before the time is up (then with `wrong_secret`, naming the refused process). A
/// member learns early that its own secret is the odd one: when the process in the
/// place of rank 0 has refused it twice, `record_check` apart, and no other there had
/// proved the secret.
class formation {
 public:
  explicit formation(world_core& core);
  ~formation();
  formation(const formation&) = delete;
  formation& operator=(const formation&) = delete;

  /// Ends when the world is formed and handed to the core, or broken with the reason.
  [[nodiscard]] task<void> run();
  /// Stops the forming: the world was broken or abandoned meanwhile.
  void stop() noexcept { stopped_.set(); }

  // Called by the world router.
  void take(control_message message);
  /// Returns whether `speaker` is entitled to that message: rank 0 to a commit and a
  /// rollback, each member to its own `ready`.
  [[nodiscard]] bool may_say(const control_message& message,
                             const incarnation& speaker) const noexcept;
  void link_lost(const incarnation& peer, enum cause why, const std::string& detail);
  void connection_arrived() noexcept { news_.set(); }

  /// Returns whether that is its present try. It has none before the first, and a
  /// successor is formed without one.
  [[nodiscard]] bool is_trying(std::uint64_t attempt) const noexcept {
    return attempt_ != 0 && attempt_ == attempt;
  }
  [[nodiscard]] std::uint64_t world_id() const noexcept { return world_id_; }

 private:
  /// A member checks its record this often and writes it again if it was erased (a
  /// leader died after it had read it).
  static constexpr duration record_check = std::chrono::seconds(1);
  /// How long one member may take to answer a dial or a question before it counts as
  /// silent.
  static constexpr duration answer_limit = std::chrono::seconds(1);
  /// From the proposal to the last `ready`; then another try, perhaps with other
  /// members.
  static constexpr duration ready_limit = std::chrono::seconds(5);
  static constexpr duration held_pause = std::chrono::milliseconds(50);
  static_assert(answer_limit < ready_limit);

  /// A process that could not prove the secret, and the rank it stood for.
  struct refusal {
    rank_t rank;
    process_address who;
    [[nodiscard]] std::string text() const;
  };
  /// What is known of the holder of a rank, from itself and from the members of its
  /// epoch.
  struct inquiry {
    std::optional<bool> said;
    bool may_be_there = false;
    bool seen_alive = false;
    bool seen_gone = false;
    event is_unsure;
  };
  /// This try failed; another may succeed.
  struct try_again {
    std::string reason;
  };
  /// No try can succeed.
  struct give_up {
    enum cause why;
    rank_t rank;
    process_identity peer;
    std::string reason;
  };

  [[nodiscard]] task<void> form();
  /// Logs once a second what is awaited, later every ten seconds, until it is
  /// cancelled.
  [[nodiscard]] task<void> tell_what_is_missing();
  [[nodiscard]] task<void> open_device();
  [[nodiscard]] task<void> until_formed();
  [[nodiscard]] task<void> try_once();
  [[nodiscard]] task<void> claim_rank();
  /// Asks whether a process says that it is that member of this world.
  [[nodiscard]] task<bool> says_it_is(process_address who, rank_t rank);
  [[nodiscard]] task<bool> is_held(process_address holder,
                                   const std::optional<world_view>& old);
  [[nodiscard]] task<void> ask_holder(const process_address& holder, inquiry& found,
                                      scope& both);
  [[nodiscard]] task<void> ask_others(const world_view& old, inquiry& found, scope& both);
  [[nodiscard]] task<void> ask_other(const world_view& old, rank_t rank, inquiry& found);
  [[nodiscard]] task<void> lead();
  [[nodiscard]] task<join_record> collect(rank_t rank, formed_parts& parts,
                                          const std::vector<std::uint64_t>& attempts);
  [[noreturn]] void refuse_twins(const join_record& record, rank_t rank,
                                 const formed_parts& parts,
                                 const std::vector<std::uint64_t>& attempts);
  [[nodiscard]] task<void> until_replaced(rank_t rank, std::string record);
  /// Commits `parts.view`. Without `attempts` the members know the view already.
  [[nodiscard]] task<void> commit_when_ready(formed_parts& parts,
                                             const std::vector<std::uint64_t>& attempts);
  [[nodiscard]] task<void> propose(const formed_parts& parts,
                                   const std::vector<std::uint64_t>& attempts);
  [[nodiscard]] task<void> gather_readiness();
  [[nodiscard]] task<void> follow();
  [[nodiscard]] task<void> be_ready(const world_view& view);
  /// Forms a successor in one try, without the store.
  [[nodiscard]] task<void> succeed(const world_view& view);
  [[nodiscard]] task<propose_message> await_proposal();
  [[nodiscard]] task<void> examine_leader();
  [[nodiscard]] task<void> until_called_off();
  [[nodiscard]] task<void> await_commit(const std::vector<link_hold>& links);
  void heed_what_followed();
  [[nodiscard]] task<void> connect(const world_view& view, formed_parts& parts);
  [[nodiscard]] task<void> connect_one(const world_view& view, rank_t peer,
                                       formed_parts& parts);
  [[nodiscard]] task<void> withdraw_join();
  void note_refusal(rank_t rank, const process_address& who);
  void adopt(const world_view& view);
  void forget_view() noexcept;
  void tell(const link_hold& l, const control_message& message);
  void roll_back(const std::vector<link_hold>& links, const std::string& reason) noexcept;

  [[nodiscard]] std::string key(const std::string& tail) const;
  [[nodiscard]] std::string join_key(rank_t rank) const;
  /// Returns the rank by which failures name it: in a shrunk world, the previous rank.
  [[nodiscard]] rank_t known_as(rank_t rank) const;
  [[nodiscard]] duration left() const;
  [[nodiscard]] failure late() const;

  world_core& core_;
  runtime_core& runtime_;
  world_router& router_;
  reactor& service_;
  endpoint& peers_;
  store_gate& store_;
  const rank_t rank_;
  const rank_t size_;
  const time_point deadline_;

  std::uint64_t attempt_ = 0;
  std::uint64_t world_id_ = 0;
  std::string my_record_;
  std::deque<control_message> inbox_;
  std::vector<incarnation> members_;
  bool lost_member_ = false;
  broken_message loss_;  ///< names the member that was lost first, for the others
  std::optional<refusal> refused_;
  bool leader_is_proven_ = false;
  event news_;
  event stopped_;

  // What is awaited, for the failure when time is up.
  enum cause waiting_as_ = cause::not_joined;
  rank_t waiting_rank_ = no_rank;
  process_identity waiting_peer_;
  std::string waiting_for_;
};

}  // namespace manyworlds::inline v0::detail
