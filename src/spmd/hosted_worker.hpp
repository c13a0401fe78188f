// Hosted worker: an agent's end of one incarnation of a worker.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <string>

#include "manyworlds/coro/event.hpp"
#include "manyworlds/coro/task.hpp"
#include "manyworlds/launch/process_options.hpp"
#include "manyworlds/launch/supervised_process.hpp"
#include "manyworlds/store/store.hpp"
#include "manyworlds/world/runtime.hpp"
#include "manyworlds/world/world.hpp"
#include "spmd/command_wire.hpp"
#include "spmd/message_block.hpp"
#include "spmd/node_wire.hpp"
#include "spmd/worker_meshes.hpp"

namespace manyworlds::inline v0::detail {

/// Its process and its control world, of which the agent is rank 0. Commands wait here
/// for the worker alone: there are no more of them than fit its window, which the
/// controller keeps. Thread: the agent's reactor.
class hosted_worker {
 public:
  struct command {
    command_wire::command_head head;
    received_block block;  ///< shared with other workers
    std::uint64_t behind;  ///< how many urgent ones go before
  };

  /// Starts the process. Errors: those of `supervised_process`.
  hosted_worker(runtime& rt, store& meeting, const worker_seat& seat,
                process_options program);
  hosted_worker(const hosted_worker&) = delete;
  hosted_worker& operator=(const hosted_worker&) = delete;

  [[nodiscard]] std::uint64_t incarnation() const noexcept { return incarnation_; }
  /// Returns the name of its control world.
  [[nodiscard]] const world_name& name() const noexcept { return name_; }
  [[nodiscard]] supervised_process& process() noexcept { return process_; }

  /// Lets it have a command.
  void push(command next, bool is_urgent);
  /// Breaks its control world.
  void fail(std::string why) {
    if (control_) control_.fail(std::move(why));
  }
  /// Drops its control world, by which it ends.
  void let_go() noexcept { let_go_.set(); }

  /// Forms the control world, and passes on what comes over it to the controller, until
  /// it is over; then says so. Errors: those of the controller's world. Lifetime: that
  /// outlives the task.
  [[nodiscard]] static task<void> run(std::shared_ptr<hosted_worker> self,
                                      world& controller);

 private:
  [[nodiscard]] task<failure> serve(world& controller);
  [[nodiscard]] task<void> meet(world& controller);
  [[nodiscard]] task<void> read(world& controller);
  [[nodiscard]] task<void> write();
  [[nodiscard]] bool may_send() const noexcept;
  void push_urgent(command next);
  [[nodiscard]] node_wire::word_of word(node_wire::word_kind kind) const noexcept;

  const int id_;
  const std::uint64_t incarnation_;
  const world_name name_;
  supervised_process process_;
  world control_;
  std::deque<command> waiting_;
  std::deque<command> urgent_;
  std::uint64_t urgent_so_far_ = 0;
  std::size_t urgent_bytes_ = 0;  ///< of their blocks
  event wake_;
  event let_go_;
};

}  // namespace manyworlds::inline v0::detail
