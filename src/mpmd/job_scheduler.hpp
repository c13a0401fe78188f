// Job scheduler: which instances get a place, and which may start.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "mpmd/instance_regions.hpp"
#include "mpmd/job_context.hpp"
#include "mpmd/node_views.hpp"

namespace manyworlds::inline v0::detail {

/// Starts what waits, when it may: the roles that it comes after are ready, its pause is
/// over, nothing of its region's earlier incarnations is left, and all that wait in its
/// region have places. It changes the context and nothing else.
class job_scheduler {
 public:
  job_scheduler(job_context& job, const instance_regions& regions,
                const node_views& nodes);

  /// Gives places to all instances of the start, all or none. Returns why that cannot be
  /// done, or nothing.
  [[nodiscard]] std::optional<std::string> place_all();
  /// Gives places to those that wait and have lost theirs, each region all or none.
  /// Returns why one has none yet, or nothing.
  [[nodiscard]] std::optional<std::string> place_again();
  /// Lets the next incarnation of each that may start run.
  void start_what_may(recorded_time now);
  /// Says for people, by instance, what each waits for; empty if it does not wait.
  [[nodiscard]] std::vector<std::string> what_waits_for(recorded_time now) const;
  /// Returns when the next pause ends, if one lasts.
  [[nodiscard]] std::optional<recorded_time> next_start(recorded_time now) const;
  /// Returns whether a role can go on without those of it that lack a place.
  [[nodiscard]] bool has_enough_of(std::size_t role) const;
  /// Returns whether all instances that are wanted are ready, or have ended well.
  [[nodiscard]] bool is_all_ready() const;

 private:
  /// What was tried to be placed, beside what, and where.
  struct attempt {
    std::vector<instance_id> wanted;
    std::vector<instance_place> taken;
    std::vector<node_resources> nodes;
    std::string trouble;  ///< what came of it

    [[nodiscard]] bool is_of_the_same(const attempt& other) const {
      return wanted == other.wanted && taken == other.taken && nodes == other.nodes;
    }
  };

  [[nodiscard]] std::vector<instance_place> taken() const;
  /// Gives places to all of these or to none. Returns why not, or nothing.
  [[nodiscard]] std::optional<std::string> place_these(
      const std::vector<instance_id>& wanted);
  [[nodiscard]] bool is_ready(std::size_t instance) const;
  /// Returns by role whether enough of its instances are ready for those after it.
  [[nodiscard]] std::vector<bool> ready_roles() const;
  /// Returns by region whether nothing of it may start yet: an earlier incarnation of
  /// what waits in it still lives, or a member that waits has no place.
  [[nodiscard]] std::vector<bool> held_regions() const;
  /// Returns whether something lives on that node that is not placed there.
  [[nodiscard]] bool has_strays(const std::string& node, const node_view& view) const;

  job_context& job_;
  const instance_regions& regions_;
  const node_views& nodes_;
  std::vector<std::vector<std::size_t>> after_;  // by role: those that it comes after
  std::optional<attempt> last_failed_;
};

}  // namespace manyworlds::inline v0::detail
