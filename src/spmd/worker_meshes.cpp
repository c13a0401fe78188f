#include "spmd/worker_meshes.hpp"

#include <algorithm>
#include <utility>

#include "exception_text.hpp"
#include "manyworlds/coro/when_all.hpp"
#include "manyworlds/coro/when_any.hpp"
#include "manyworlds/spmd/value_reader.hpp"
#include "spmd/command_wire.hpp"
#include "spmd/mesh_name.hpp"
#include "world/world_core.hpp"

namespace manyworlds::inline v0::detail {

bool mesh_seat::is_up() const { return world && world.state() == world_state::up; }

bool mesh_seat::is_in_collective() const {
  if (!world) return false;
  const operation* op = access::core(world).pending().first();
  while (op != nullptr && !is_collective(op->kind)) op = op->next_pending;
  return op != nullptr;
}

std::string mesh_seat::under_way() const {
  if (!is_up()) return {};
  const world_core& core = access::core(world);
  const auto worker_of = [this](rank_t each) {
    return " worker " + std::to_string(ids[static_cast<std::size_t>(each)]);
  };
  std::string text;
  const auto collective = core.moved_by() ? core.moved_by()->collective() : std::nullopt;
  if (collective) {
    text = name_of(collective->kind);
    const char* between = ", waits for";
    for (const rank_t each : collective->absent)
      text += std::exchange(between, " and") + worker_of(each);
    return text;
  }
  const operation* const op = core.pending().first();
  if (op == nullptr) return {};
  text = name_of(op->kind);
  if (is_message(op->kind) && op->peer != no_rank)
    text += (op->kind == operation_kind::send ? " to" : " from") + worker_of(op->peer);
  return text;
}

mesh_position position_of(const mesh_seat* at) {
  if (at == nullptr || !at->is_up()) return {};
  const transfer_counters c = at->world.counters();
  return {access::core(at->world).collectives_begun(), c.messages_sent,
          c.messages_received};
}

void worker_meshes::describe(std::uint32_t mesh, std::uint64_t number,
                             std::vector<int> ids) {
  const auto own = std::ranges::find(ids, seat_.id);
  if (own == ids.end() || ids.size() > command_wire::most_members)
    throw value_error("a mesh without this worker");
  mesh_seat& at = want(mesh, number);
  at.rank = static_cast<rank_t>(own - ids.begin());
  at.ids = std::move(ids);
}

mesh_seat& worker_meshes::want(std::uint32_t mesh, std::uint64_t number) {
  std::unique_ptr<mesh_seat>& at = meshes_[mesh];
  if (!at) at = std::make_unique<mesh_seat>();
  at->id = mesh;
  at->wanted = std::max(at->wanted, number);
  at->another_wanted.set();
  return *at;
}

mesh_seat* worker_meshes::find(std::uint32_t mesh) const noexcept {
  const auto at = meshes_.find(mesh);
  return at == meshes_.end() ? nullptr : at->second.get();
}

void worker_meshes::form(scope& in, const mesh_seat* in_use) {
  for (auto& [id, at] : meshes_) {
    const bool is_due = !at->ids.empty() && at->number != at->wanted && !at->is_forming;
    if (!is_due || at.get() == in_use) continue;
    at->is_forming = true;
    at->settled.reset();
    in.spawn(form_one(*at));
  }
}

/// Gives up what is forming when another is wanted.
task<void> worker_meshes::form_one(mesh_seat& at) {
  while (at.number != at.wanted) {
    at.number = at.wanted;
    at.another_wanted.reset();
    auto meeting =
        std::make_unique<controller_store>(desk_, at.id, at.number, at.ids.size());
    at.world = world(runtime_, *meeting,
                     {.name = mesh_name(seat_.session, at.id, at.number),
                      .rank = at.rank,
                      .size = static_cast<rank_t>(at.ids.size()),
                      .backend = seat_.limits.backend,
                      .device = device_,
                      .form = seat_.limits.start,
                      .suspect_after = seat_.limits.suspect_after,
                      .broken_after = seat_.limits.lost_after});
    // The one before goes behind its world, which may have something to withdraw.
    at.meeting = std::move(meeting);
    at.trouble.clear();
    at.why = cause::none;
    auto formed = [](world& w) -> task<void> { co_await w; };
    auto another = [](event& wanted) -> task<void> { co_await wanted; };
    try {
      co_await when_any(formed(at.world), another(at.another_wanted));
    } catch (const world_error& e) {
      at.trouble = e.what();
      at.why = e.cause();
    } catch (...) {
      at.trouble = handled_exception_text();
    }
  }
  at.is_forming = false;
  at.settled.set();
}

task<void> worker_meshes::leave() {
  std::vector<task<void>> leaving;
  for (auto& [id, at] : meshes_) {
    if (at->is_forming || !at->is_up()) continue;
    leaving.push_back([](world& w) -> task<void> {
      try {
        co_await w.leave();
      } catch (const world_error&) {
        // The log has it, and the session ends.
      }
    }(at->world));
  }
  co_await when_all(std::move(leaving));
}

}  // namespace manyworlds::inline v0::detail
