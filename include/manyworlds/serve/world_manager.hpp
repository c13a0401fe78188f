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

/// A manager has no world of that name: nothing that happened to a world, but a mistake.
class MANYWORLDS_EXPORT unknown_world : public std::out_of_range {
 public:
  using std::out_of_range::out_of_range;
};

/// What a manager knows of one world.
struct world_status {
  world_name name = {};
  world_state state = world_state::described;
  /// 0 until it was formed.
  std::uint64_t epoch = 0;
  rank_t rank = no_rank;
  rank_t size = 0;
  /// Members that have not been heard of for a while.
  std::vector<rank_t> suspects;
  /// Why it is broken, closed or could not be formed.
  class failure failure;
};

/// Worlds under their names, for those who do not keep them themselves:
///
///     world_manager worlds(rt, store);
///     co_await worlds.form({.name = "left", .rank = 0, .size = 2});
///     co_await worlds["left"].send(x, to{1});
///
/// A world stays listed, with the reason, when it breaks, closes or could not be formed;
/// its name can be formed again at once. A reference to it is good until the name is
/// removed, and refers to the latest world of that name. One that shall be formed again
/// by itself is rather given to `keep`.
///
/// Members on the runtime's reactor. One of `form`, `reform` and `remove` at a time for a
/// name; `remove` cuts the others short. The worlds that are left when it is destroyed
/// break (`abandoned`): `co_await remove_all()` first. Runtime and store must outlive it.
///
/// The runtime remembers the last epoch of each name as long as it lives, also of one
/// that was removed: others may go on with it, or ask. So let names come again; peers
/// that never do are `accept`'s business.
class world_manager {
 public:
  world_manager(runtime& rt, store& st) noexcept : runtime_(rt), store_(st) {}
  world_manager(const world_manager&) = delete;
  world_manager& operator=(const world_manager&) = delete;

  /// Formed when it ends; throws world_error as the world does, and `invalid_argument`
  /// for a name whose world is not over. Cancelled, it gives up the world.
  [[nodiscard]] task<void> form(world_options options);
  /// The next epoch of the same options; a world that is not yet over is broken first.
  [[nodiscard]] task<void> reform(world_name name);
  /// Leaves in order and lists the name no more; ends when nothing of the world is left.
  /// Throws what `leave` throws if it breaks meanwhile, but not why it was over before.
  [[nodiscard]] task<void> remove(world_name name);
  /// All of them, side by side, however each of them ends; those that somebody removes
  /// already are waited for.
  [[nodiscard]] task<void> remove_all();

  /// Throws unknown_world; operations on a world that broke throw its first cause.
  [[nodiscard]] world& operator[](std::string_view name) const;
  /// Null if there is none.
  [[nodiscard]] world* find(std::string_view name) const noexcept;
  /// By name.
  [[nodiscard]] std::vector<world_status> list() const;

  /// What happens from now on to all worlds of the runtime, also to those of `keep` and
  /// `accept`. For each subscriber; what it does not take in time is dropped, the oldest
  /// first: see `world_events`.
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
  /// Hold an entry for one of the operations above.
  class turn;
  class removal;

  [[nodiscard]] std::shared_ptr<entry> get(std::string_view name) const;
  [[nodiscard]] task<void> form_next(entry& e);
  [[nodiscard]] task<void> remove_entry(std::unique_ptr<removal> of);

  runtime& runtime_;
  store& store_;
  std::map<std::string, std::shared_ptr<entry>, std::less<>> worlds_;
};

}  // namespace manyworlds::inline v0
