// World members: the links to the members of a world, which of them are silent, and which
// have left.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "link/data_channel.hpp"
#include "link/endpoint.hpp"
#include "manyworlds/detail/member_work.hpp"
#include "manyworlds/failure.hpp"
#include "manyworlds/time.hpp"
#include "manyworlds/world/view.hpp"

namespace manyworlds::inline v0::detail {

class world_core;

/// The members of one world, as this one sees them. It decides who is suspect
/// (`suspect_after`) and who is lost, and breaks the world then.
///
/// A member has left when its backend said so on its data connection. What ends from then
/// on, its connection or its link, breaks nothing.
class world_members {
 public:
  explicit world_members(world_core& core);
  world_members(const world_members&) = delete;
  world_members& operator=(const world_members&) = delete;

  // --- any thread, once the world has an epoch
  [[nodiscard]] const world_view& view() const noexcept { return view_; }
  /// Returns the link to each member by rank; null for this one.
  [[nodiscard]] const std::vector<std::shared_ptr<link>>& links() const noexcept {
    return links_;
  }
  /// Returns whether the data of a member comes through shared memory.
  [[nodiscard]] bool is_over_memory(rank_t rank) const noexcept;
  [[nodiscard]] bool is_suspect(rank_t rank) const noexcept;
  /// Returns how long a member has been silent; zero for this one.
  [[nodiscard]] duration silence_of(rank_t rank) const noexcept;

  // --- the service reactor
  /// Takes the members of the committed formation, before the world has its epoch.
  void take_formed(const world_view& view, std::vector<link_hold> links,
                   const std::vector<data_channel>& channels);
  /// Breaks the world if a member died since it reported ready.
  void break_for_the_dead() noexcept;
  /// Suspects silent members and breaks the world by their silence. Returns when it
  /// must be called again at the latest: a sign of life only makes that later.
  time_point examine_silence(time_point now) noexcept;
  /// Breaks the world if one of its members is at the other end of this link.
  void link_lost(const link& l, enum cause why, const std::string& detail) noexcept;
  [[nodiscard]] bool has_left(rank_t rank) const noexcept;
  /// Tells the others why the world broke, and lets go of the links to them.
  void tell_of(const failure& broken_by, rank_t reporter);
  void let_go() noexcept { holds_.clear(); }

  // --- the reactor of the world
  /// Returns whether a member beats and does not turn: it is blocked in user code.
  [[nodiscard]] bool is_blocked(rank_t rank) const noexcept;
  void note_heard(rank_t rank) noexcept;
  /// Notes that a member has left. Returns whether all others have.
  [[nodiscard]] bool note_departure(rank_t rank) noexcept;
  void note_connection_end(rank_t rank, int error) noexcept;

 private:
  void note_suspicion(rank_t rank, duration silence, bool is_suspect) noexcept;
  /// Tells that a member has left, or that its connection ended by an error (0: none).
  void tell_service_of(rank_t rank, std::optional<int> connection_error) noexcept;
  void take_news() noexcept;
  void take_departures() noexcept;
  /// Finds out why a data connection ended, and breaks the world by that.
  [[nodiscard]] static task<void> judge(std::shared_ptr<world_core> core, rank_t rank,
                                        int error);

  world_core& core_;

  // Written by the service before the epoch is set, and read by all.
  world_view view_;
  std::vector<std::shared_ptr<link>> links_;
  std::vector<bool> over_memory_;

  std::vector<std::atomic<bool>> suspects_;  // written by the service
  std::vector<link_hold> holds_;             // the service reactor's
  std::vector<bool> has_left_;               // the service reactor's
  std::vector<bool> left_;                   // the same, on the reactor of the world

  // What the reactor of the world tells the service.
  std::mutex news_mutex_;
  std::vector<rank_t> departed_;                           // guarded by news_mutex_
  std::vector<std::pair<rank_t, int>> ended_connections_;  // guarded by news_mutex_
  bool is_news_queued_ = false;                            // guarded by news_mutex_
  kept_member_work<&world_members::take_news> news_{*this};
};

}  // namespace manyworlds::inline v0::detail
