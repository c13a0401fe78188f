// Worker loop: what one incarnation of a worker does, from joining its controller to its
// end.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <stop_token>
#include <string>
#include <utility>
#include <vector>

#include "manyworlds/coro/event.hpp"
#include "manyworlds/coro/scope.hpp"
#include "manyworlds/coro/task.hpp"
#include "manyworlds/coro/worker_thread.hpp"
#include "manyworlds/spmd/function_table.hpp"
#include "manyworlds/spmd/session_options.hpp"
#include "manyworlds/store/store.hpp"
#include "manyworlds/world/runtime.hpp"
#include "manyworlds/world/world.hpp"
#include "spmd/command_wire.hpp"
#include "spmd/controller_store.hpp"
#include "spmd/received_command.hpp"
#include "spmd/register_file.hpp"
#include "spmd/worker_device.hpp"
#include "spmd/worker_meshes.hpp"
#include "spmd/worker_plugins.hpp"

namespace manyworlds::inline v0::detail {

/// Joins its control world, reads commands and carries them out one after the other.
///
/// Three tasks: `read` takes what comes at once, so that a call can be ended while it
/// runs; `obey` carries out; `send_questions` sends what its meshes ask the controller.
/// Thread: the reactor of the worker's runtime. Lifetime: runtime, store, table and
/// places outlive it.
class worker_loop {
 public:
  /// `locals` is null unless the worker is a thread of the controller's process. Takes
  /// the worker's device. Thread: the reactor's. Errors: those of `worker_device::open`.
  worker_loop(runtime& rt, store& meeting, const function_table& functions,
              worker_seat seat, local_places* locals = nullptr);
  worker_loop(const worker_loop&) = delete;
  worker_loop& operator=(const worker_loop&) = delete;
  ~worker_loop();

  /// Ends when the controller closes or is gone. Errors: the causes of forming the
  /// control world, and of its break.
  [[nodiscard]] task<void> run();
  /// Calls it once the controller is gone, before what runs is cancelled.
  void when_controller_is_gone(std::function<void()> told) { gone_ = std::move(told); }

 private:
  using command_kind = command_wire::command_kind;
  using command_flag = command_wire::command_flag;
  using reply_kind = command_wire::reply_kind;

  using command = received_command;
  struct running_call;
  struct outcome;
  struct done_call {
    std::uint64_t id;
    std::uint32_t mesh;
    mesh_position moved;
    bool is_cut;
  };

  [[nodiscard]] task<void> until_gone(task<void> what);
  [[nodiscard]] task<void> read();
  [[nodiscard]] task<void> send_questions();
  [[nodiscard]] task<void> obey();
  [[nodiscard]] task<void> end_call(std::uint64_t call);
  [[nodiscard]] bool break_collective_of(std::uint64_t call);
  [[nodiscard]] task<void> break_later_collective_of(std::uint64_t call);
  void resume(const command& c);
  void note_cut_calls(std::uint32_t mesh, std::uint64_t behind);
  [[nodiscard]] task<void> tell_cut_calls();

  [[nodiscard]] task<void> carry_out(command& c);
  [[nodiscard]] task<void> execute(command& c);
  /// Errors: value_error that says why it cannot be the one of this command.
  [[nodiscard]] const function_table::entry& find_function(command& c) const;
  [[nodiscard]] worker_facts facts_of(running_call& call) noexcept;
  [[nodiscard]] task<void> run_function(command& c, running_call& call, outcome& out);
  [[nodiscard]] static mesh_position moved_since(const mesh_position& before,
                                                 const running_call& call);
  void release(command& c) noexcept;
  void add_mesh(command& c);
  void form_meshes();

  [[nodiscard]] task<void> tell(const command& c, outcome& out);
  [[nodiscard]] task<void> tell_done(done_call which);
  /// Says what is done, and of which call that was ended before its turn.
  [[nodiscard]] task<void> tell_progress(std::uint64_t will_skip = 0);
  /// Says what is done when nothing else did for a while.
  [[nodiscard]] task<void> tell_late();
  /// Says what is being carried out.
  [[nodiscard]] task<void> tell_status();

  runtime& runtime_;
  worker_plugins functions_;
  const worker_seat seat_;
  local_places* const locals_;
  /// Null if the session has no devices. Destroyed after `registers_`.
  const std::shared_ptr<worker_device> device_;
  const int cpu_;
  const std::shared_ptr<store_desk> desk_;
  worker_meshes meshes_;
  world control_;
  register_file registers_;
  std::deque<command> waiting_;
  event arrived_;  ///< a command, or a resume
  event resumed_;
  running_call* running_ = nullptr;
  std::uint64_t last_begun_ = 0;
  /// Calls that were ended before their turn.
  std::set<std::uint64_t> unwanted_;
  /// The call behind which all commands are held; 0 if they are not.
  std::uint64_t held_by_ = 0;
  /// The latest calls that ended well, for the controller that ends one of them.
  std::deque<done_call> latest_;
  /// Those of which the last world was cut off: nothing begins until they are settled.
  std::set<std::uint64_t> cut_;
  std::deque<done_call> untold_cuts_;
  std::uint64_t done_ = 0;
  std::uint64_t told_ = 0;
  std::size_t bytes_done_ = 0;  ///< since it was told
  event untold_;                ///< there is something done that was not told
  /// The one thread of blocking functions; there from the first of them on.
  std::unique_ptr<worker_thread> compute_;
  scope* beside_ = nullptr;
  std::function<void()> gone_;
};

}  // namespace manyworlds::inline v0::detail
