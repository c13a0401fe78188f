// Placement search: finds a node for each bundle, with backtracking and a limit of steps.
#pragma once

#include <cstdint>
#include <set>
#include <vector>

#include "mpmd/placement_problem.hpp"
#include "mpmd/placement_state.hpp"

namespace manyworlds::inline v0::detail {

/// Where a bundle is placed, and why.
struct placement_decision {
  std::uint32_t node = none;
  bool is_only = true;   ///< no other fits
  bool is_last = false;  ///< others fit, and were tried: they led to dead ends
  /// What ranked it before the next best; past the last reason: its position alone.
  std::size_t reason = rank_reasons;
  std::uint32_t separation = none;  ///< one that excluded other nodes
  std::uint32_t preference = none;  ///< one that excluded all others that fit

  friend bool operator==(const placement_decision&, const placement_decision&) = default;
};

/// Where the search stood when no node was left for a bundle.
struct dead_end {
  std::uint32_t bundle = none;          ///< none: there was no dead end
  std::vector<node_verdict> verdicts;   ///< by node
  std::vector<placement_amount> free;   ///< by node
  std::vector<std::uint32_t> nodes_of;  ///< where the bundles before it were
};

enum class search_end : std::uint8_t { found, impossible, gave_up };

/// Places bundles in their order, each where it ranks best, and takes the last back where
/// one cannot be placed. It finds a placement if there is one, unless it runs out of
/// steps. The same problem gives the same placement.
class placement_search {
 public:
  explicit placement_search(const placement_problem& problem, std::size_t few = few_nodes)
      : problem_(problem), state_(problem, few), frames_(problem.bundles.size()) {}

  /// Demands that a preference is measured at most so.
  void limit(std::uint32_t preference, std::uint64_t most) {
    state_.limit(preference, most);
  }
  /// Places bundles up to `most_steps` times. It is called once.
  [[nodiscard]] search_end run(std::uint64_t most_steps);

  [[nodiscard]] std::uint64_t steps() const noexcept { return steps_; }
  /// Returns how often a node was judged, for all of its class, to choose one.
  [[nodiscard]] std::uint64_t looks() const noexcept { return looks_; }
  /// Returns where the bundles are. Precondition: a placement was found.
  [[nodiscard]] std::vector<placement_decision> decisions() const;
  [[nodiscard]] std::uint64_t measure(std::uint32_t preference) const {
    return state_.measure(preference);
  }
  /// Returns the dead end with the most bundles placed.
  [[nodiscard]] const dead_end& deepest() const noexcept { return deepest_; }

 private:
  struct frame {
    placement_decision chosen;
    std::vector<char> tried;  ///< by node; empty: none
  };

  struct choice;
  struct alike_nodes;

  [[nodiscard]] bool enter(std::uint32_t depth);
  [[nodiscard]] bool choose(std::uint32_t depth);
  [[nodiscard]] static alike_nodes untried(const frame& at,
                                           const std::set<std::uint32_t>& nodes);
  void look(const placement_bundle& bundle, const alike_nodes& nodes, choice& found);
  [[nodiscard]] bool are_exchangeable(std::uint32_t a, std::uint32_t b) const;
  [[nodiscard]] std::uint64_t left_of_form(std::uint32_t depth) const;
  void refute(frame& at, std::uint32_t node);
  void note_dead_end(std::uint32_t depth);

  const placement_problem& problem_;
  placement_state state_;
  std::vector<frame> frames_;
  std::uint64_t steps_ = 0;
  std::uint64_t looks_ = 0;
  dead_end deepest_;
};

struct placement_solution {
  search_end end = search_end::impossible;
  std::uint64_t steps = 0;                    ///< until it was found or not
  std::vector<placement_decision> decisions;  ///< by bundle, if it was found
  dead_end where;                             ///< otherwise
};

/// Searches, and betters what was found by the preferences, the first first, until each
/// is as good as it can be or a bounded number of steps is spent. Beside `most_steps`
/// there is one for each bundle.
[[nodiscard]] placement_solution solve_placement(const placement_problem& problem,
                                                 std::uint64_t most_steps);

}  // namespace manyworlds::inline v0::detail
