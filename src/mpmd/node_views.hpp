// Node views: what is, as the agents tell it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "manyworlds/mpmd/node_resources.hpp"
#include "mpmd/instance_report.hpp"
#include "mpmd/job_context.hpp"

namespace manyworlds::inline v0::detail {

/// An order to an agent. All are idempotent.
struct agent_order {
  enum class what : std::uint8_t {
    ensure,    ///< this incarnation runs; it is started if it never was
    end,       ///< this incarnation ends, after it was let drain
    recorded,  ///< its end is recorded: the agent may forget it
    ask,       ///< it controls the role of one that failed: can it go on by itself?
  };

  what kind = what::ensure;
  std::string node;
  std::size_t instance = 0;
  std::uint64_t incarnation = 0;
  /// Of `ask`: the instance that failed.
  std::size_t about = 0;

  friend bool operator==(const agent_order&, const agent_order&) = default;
};

/// An agent, as it was heard last.
struct node_view {
  node_resources resources;
  /// Names the agent's process; empty while none is there.
  std::string agent;
  /// While none is there: since when, and whether it is known to be dead.
  recorded_time absent_since = 0;
  bool is_dead = false;
  /// Whether one was ever there while this master was.
  bool has_come = false;
  /// What it has, by instance. An agent has one incarnation of an instance at a time.
  std::map<std::size_t, instance_report> instances;
  /// The last order about each, to this process of the agent.
  std::map<std::size_t, agent_order> told;

  [[nodiscard]] bool is_there() const noexcept { return !agent.empty(); }
  /// Returns whether an incarnation of it was ordered, of which nothing was told yet: it
  /// may live.
  [[nodiscard]] bool is_under_way(std::size_t instance) const;
};

/// The end of an incarnation, as it was heard first.
struct heard_end {
  std::size_t instance = 0;
  std::uint64_t incarnation = 0;
};

/// All agents that were ever heard of, by the names of their nodes.
class node_views {
 public:
  /// An agent says what it has. Another process than before knows nothing of what that
  /// one had started, and that has ended.
  /// Ends are in the order in which they came to be.
  void came(const node_resources& resources, std::string agent,
            const std::vector<std::pair<std::size_t, instance_report>>& has);
  /// Notes a node that has an agent to come, since that time.
  void expect(std::string_view node, recorded_time since);
  void lost(std::string_view node, bool is_dead, recorded_time now);
  /// Returns false if no agent is there on that node.
  bool heard(std::string_view node, std::size_t instance, instance_report report);

  /// Returns the ends that were heard since the last call, the first one first: the cause
  /// of others is named, and not the lowest number (law G-e).
  [[nodiscard]] std::vector<heard_end> take_ends() { return std::exchange(ends_, {}); }
  /// Puts back one that cannot be concluded from yet.
  void keep_end(heard_end end) { ends_.push_back(end); }

  /// Returns whether an agent is expected that has not come yet.
  [[nodiscard]] bool expects_any() const noexcept;
  /// Returns whether an agent is away of which it is not known that it is dead.
  [[nodiscard]] bool is_any_away() const noexcept;
  /// Returns whether all agents have ended: none is there, and none may be cut off.
  [[nodiscard]] bool are_all_dead() const noexcept;

  [[nodiscard]] node_view* find(std::string_view node);
  [[nodiscard]] const node_view* find(std::string_view node) const;
  [[nodiscard]] std::map<std::string, node_view, std::less<>>& all() noexcept {
    return nodes_;
  }
  [[nodiscard]] const std::map<std::string, node_view, std::less<>>& all()
      const noexcept {
    return nodes_;
  }
  /// Returns what those have to give that are there.
  [[nodiscard]] std::vector<node_resources> resources() const;

  /// Returns what is told of the record's own incarnation, or null.
  [[nodiscard]] const instance_report* current(std::size_t instance,
                                               const instance_record& record) const;

 private:
  std::map<std::string, node_view, std::less<>> nodes_;
  std::vector<heard_end> ends_;
};

}  // namespace manyworlds::inline v0::detail
