// Worker meshes: the meshes that a worker belongs to, and their worlds.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "manyworlds/coro/event.hpp"
#include "manyworlds/coro/scope.hpp"
#include "manyworlds/coro/task.hpp"
#include "manyworlds/spmd/session_options.hpp"
#include "manyworlds/world/runtime.hpp"
#include "manyworlds/world/world.hpp"
#include "spmd/controller_store.hpp"

namespace manyworlds::inline v0::detail {

/// Which worker it is.
struct worker_seat {
  std::string session;  ///< before the names of its worlds
  int id = 0;
  int workers = 1;  ///< of the session
  std::uint64_t incarnation = 1;
  session_options limits = {};
  int on_host = 0;  ///< its number among the workers of its host
};

/// A mesh, as one of its workers has it.
struct mesh_seat {
  std::uint32_t id = 0;
  std::vector<int> ids;
  rank_t rank = 0;
  /// Through which `world` forms.
  std::unique_ptr<controller_store> meeting;
  manyworlds::world world;
  /// Which of its worlds it has, or is forming, and which it should have.
  std::uint64_t number = 0;
  std::uint64_t wanted = 0;
  event another_wanted;
  /// Set when the forming that is under way has ended.
  event settled;
  /// Why there is no world; empty if there is one.
  std::string trouble;
  /// The cause, if it is one of a world's end.
  enum cause why = cause::none;
  bool is_forming = false;

  [[nodiscard]] bool is_up() const;
  /// Returns whether a collective is under way, which cannot be taken back.
  [[nodiscard]] bool is_in_collective() const;
  /// Says for people what is under way on its world, "all_reduce, waits for worker 2";
  /// empty if nothing is.
  [[nodiscard]] std::string under_way() const;
};

/// What was moved on a mesh's world.
struct mesh_position {
  std::uint64_t collectives = 0;
  std::uint64_t sent = 0;
  std::uint64_t received = 0;

  friend bool operator==(const mesh_position&, const mesh_position&) = default;
};

/// Returns how far it is; nothing moved without a world.
[[nodiscard]] mesh_position position_of(const mesh_seat* at);

/// Forms the worlds of meshes beside the calls of the worker. Thread: its reactor.
/// Lifetime: runtime and seat outlive it.
class worker_meshes {
 public:
  /// `device` is the CUDA device of their worlds; -1 without one.
  worker_meshes(runtime& rt, std::shared_ptr<store_desk> desk, const worker_seat& seat,
                int device) noexcept
      : runtime_(rt), desk_(std::move(desk)), seat_(seat), device_(device) {}

  /// Notes who is in it. Errors: value_error if this worker is not.
  void describe(std::uint32_t mesh, std::uint64_t number, std::vector<int> ids);
  /// Notes which world it should have. That may come before its description, which waits
  /// behind other commands.
  mesh_seat& want(std::uint32_t mesh, std::uint64_t number);
  [[nodiscard]] mesh_seat* find(std::uint32_t mesh) const noexcept;
  /// Begins, as children of `in`, to form the worlds that are wanted, but for that of a
  /// mesh that is in use.
  void form(scope& in, const mesh_seat* in_use);
  /// Leaves all worlds. All members do, so that none takes the end of another for a loss.
  [[nodiscard]] task<void> leave();

 private:
  [[nodiscard]] task<void> form_one(mesh_seat& at);

  runtime& runtime_;
  const std::shared_ptr<store_desk> desk_;
  const worker_seat& seat_;
  const int device_;
  std::map<std::uint32_t, std::unique_ptr<mesh_seat>> meshes_;
};

}  // namespace manyworlds::inline v0::detail
