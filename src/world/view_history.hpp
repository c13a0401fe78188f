// View history: what a process knows of the epochs of each name, also when their worlds
// are gone, and what it tells survivors of it.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "manyworlds/store/store.hpp"
#include "manyworlds/world/view.hpp"
#include "world/control_message.hpp"
#include "world/world_core.hpp"

namespace manyworlds::inline v0::detail {

/// Keeps the last views of each name. Thread: any for what has a name alone, the service
/// reactor for the rest.
class view_history {
 public:
  [[nodiscard]] std::uint64_t last_epoch(const world_name& name) const;
  void note_epoch(const world_name& name, std::uint64_t epoch);
  /// Forgets a name that will not be formed here again.
  void forget(const world_name& name) noexcept;

  /// Notes a world that was committed here: others may ask what became of its name.
  void note_formed(const std::shared_ptr<world_core>& core);
  /// Notes a view that is committed, as a member has said, and that succeeds `origin`.
  /// `shrunk`, a world of its members, goes on from it.
  void note_learned(const std::shared_ptr<world_core>& shrunk, std::uint64_t origin,
                    const world_view& view);
  /// Notes which successors of `base` may have been committed, as far as is known here.
  void note_votes(const world_view& base, const known_successors& successors);

  /// Returns what to answer a survivor that calls for a view which is not being shrunk
  /// here. Returns nothing if this process may still take part in shrinking it, as it
  /// does while it forms a successor (`is_succeeding`).
  [[nodiscard]] std::optional<status_message> status_of(const survivor_message& call,
                                                        const incarnation& asker,
                                                        bool is_succeeding) const;

 private:
  /// A view that was committed here, or is known to be.
  struct formed_view {
    /// Its world, or the one that was shrunk when this was learned.
    std::weak_ptr<world_core> core;
    /// Distinguishes worlds of one name in two stores.
    const store* rendezvous = nullptr;
    /// The view that it succeeds; 0 if it was formed through the store.
    std::uint64_t origin = 0;
    world_view view;  ///< with its members if it is a successor
    /// A copy from known_successors, which may be gone.
    std::vector<std::vector<rank_t>> pending_votes;
    bool has_more_pending_votes = false;
  };
  /// What is known of one name.
  struct known_views {
    std::uint64_t last_epoch = 0;
    std::vector<formed_view> formed;
    std::uint64_t known_from = 0;  ///< some views below this epoch are forgotten
  };
  static constexpr std::size_t most_formed = 8;

  void add(const world_name& name, formed_view formed);
  [[nodiscard]] known_views known_as(const world_name& name) const;

  mutable std::mutex mutex_;
  std::map<std::string, known_views, std::less<>> names_;  // guarded by mutex_
};

}  // namespace manyworlds::inline v0::detail
