// World manager: the worlds of a process, by name.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "manyworlds/coro/event.hpp"
#include "manyworlds/coro/task.hpp"
#include "manyworlds/world/runtime.hpp"
#include "manyworlds/world/world.hpp"
#include "manyworlds/world/world_event.hpp"

namespace manyworlds::inline v0 {

/// A manager has no world of that name. This is a mistake of the caller and no failure
/// of a world.
class MANYWORLDS_EXPORT unknown_world : public std::out_of_range {
 public:
  using std::out_of_range::out_of_range;
};

/// Describes one world of a manager.
struct world_status {
  world_name name = {};
  world_state state = world_state::described;
  /// 0 until it was formed.
  std::uint64_t epoch = 0;
  rank_t rank = no_rank;
  rank_t size = 0;
  /// Members that were not heard from for a while.
  std::vector<rank_t> suspects;
  /// Why it is broken, closed or could not be formed.
  class failure failure;
};

/// Holds worlds under their names, for code that does not keep them itself:
///
///     world_manager worlds(rt, store);
///     co_await worlds.form({.name = "left", .rank = 0, .size = 2});
///     co_await worlds["left"].send(x, to{1});
///
/// A world stays listed, with the reason, when it breaks, closes or could not be
/// formed. Its name can be formed again at once. A reference to it is good until the
/// name is removed, and refers to the latest world of that name. Use `keep` for a world
/// that shall be formed again by itself.
///
/// Only one of `form`, `reform` and `remove` runs at a time for a name; `remove` cuts
/// the others short. The worlds that are left at destruction break (`abandoned`):
/// `co_await remove_all()` first.
///
/// The runtime remembers the last epoch of each name as long as it lives, also of a
/// name that was removed: other members may go on with it, or ask. So reuse names. Use
/// `accept` for names that never return.
///
/// Thread: the runtime's reactor. Lifetime: runtime and store must outlive it.
class world_manager {
 public:
  world_manager(runtime& rt, store& st) noexcept : runtime_(rt), store_(st) {}
  world_manager(const world_manager&) = delete;
  world_manager& operator=(const world_manager&) = delete;

  /// Forms the world. Cancelled, it gives up the world. Errors: the causes of forming;
  /// `invalid_argument` for the name of a world that is not over, or is being formed or
  /// removed.
  task<void> form(world_options options);
  /// Forms the next epoch with the same options. Breaks a world that is not yet over
  /// first. Errors: those of `form`; unknown_world.
  task<void> reform(world_name name);
  /// Leaves in order and removes the name; ends when nothing of the world is left.
  /// Errors: those of `leave` if the world breaks meanwhile, but not why it was over
  /// before; `invalid_argument` if it is being removed already; unknown_world.
  task<void> remove(world_name name);
  /// Removes all worlds, side by side, even if some end by an error. Waits for those
  /// that another task is removing. Errors: none.
  task<void> remove_all();

  /// Returns the world. Operations on a world that broke throw its first cause. Errors:
  /// unknown_world.
  [[nodiscard]] world& operator[](std::string_view name) const;
  /// Returns the world, or null if there is none.
  [[nodiscard]] world* find(std::string_view name) const noexcept;
  /// Returns all worlds, sorted by name.
  [[nodiscard]] std::vector<world_status> list() const;

  /// Subscribes to what happens from now on to all worlds of the runtime, also to those
  /// of `keep` and `accept`. Each subscriber gets all events; those that it does not
  /// take in time are dropped, the oldest first: see `world_events`.
  [[nodiscard]] world_events events(std::size_t capacity = 256) const;

 private:
  struct entry {
    world w;
    world_options options;
    bool is_busy = false;
    bool is_removed = false;
    event idle;
    event removal_ended;
  };
  /// These hold an entry for one of the operations above.
  class turn;
  class removal;

  [[nodiscard]] std::shared_ptr<entry> get(std::string_view name) const;
  task<void> form_next(entry& e);
  task<void> remove_entry(std::unique_ptr<removal> of);

  runtime& runtime_;
  store& store_;
  std::map<std::string, std::shared_ptr<entry>, std::less<>> worlds_;
};

}  // namespace manyworlds::inline v0
