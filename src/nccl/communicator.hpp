// Communicator: one world's, with its stream, from making to freeing.
#pragma once

#include <cuda_runtime_api.h>
#include <nccl.h>

#include <memory>

#include "io/reactor.hpp"
#include "manyworlds/detail/device_part.hpp"
#include "manyworlds/detail/member_work.hpp"
#include "manyworlds/inline_text.hpp"
#include "manyworlds/nccl/device_options.hpp"
#include "nccl/async_result.hpp"
#include "nccl/call_gate.hpp"
#include "nccl/completion.hpp"
#include "nccl/device.hpp"
#include "nccl/error_message.hpp"
#include "nccl/launch_order.hpp"

namespace manyworlds::inline v0::detail::nccl {

struct communicator_life;

/// Calls that block run on helper threads, with deadlines on the home reactor, which
/// never waits. When it is destroyed, what is in progress goes on in the background and
/// frees everything. At most one of `make_unique_id`, `create` and `adopt` runs at a
/// time. Each ends by running `done` once on the home reactor. If the communicator is
/// quiesced, released or destroyed before, `done` does not run. Thread: the home
/// reactor's, unless said otherwise.
class communicator {
 public:
  communicator(std::shared_ptr<device> on, reactor& home, const device_options& options,
               const world_name& name, std::uint64_t epoch);
  communicator(const communicator&) = delete;
  communicator& operator=(const communicator&) = delete;
  /// Releases it.
  ~communicator();

  /// Makes the id that rank 0 gives to all members for `create`. The process of rank 0
  /// must live until all have created.
  void make_unique_id(work& done);
  [[nodiscard]] const ncclUniqueId& unique_id() const noexcept;

  /// Makes the communicator; the peers are connected when it is done. All members call
  /// it at about the same time.
  void create(const ncclUniqueId& id, int rank, int size, work& done);
  /// Takes what the options bring, instead; makes a stream if they bring none. All
  /// members call it, as it proves that the peers answer.
  void adopt(int rank, int size, work& done);
  /// Called before `create` or `adopt`. When all is made but for connecting the peers,
  /// `stands` runs on home, once. The peers are connected only after `connect`; the
  /// time until then counts.
  void connect_later(work& stands);
  /// Connects the peers, and gives `turn` up when all that this launches is launched.
  /// Called once.
  void connect(launch_turn turn);
  /// Returns what went wrong, for use in `done`; empty if nothing did.
  [[nodiscard]] const error_message& error() const noexcept { return error_; }

  // When it is ready.
  [[nodiscard]] bool is_ready() const noexcept { return stage_ == stage::ready; }
  [[nodiscard]] ncclComm_t handle() const noexcept;
  [[nodiscard]] cudaStream_t stream() const noexcept;
  [[nodiscard]] device_costs costs() const;
  [[nodiscard]] device& on() const noexcept;
  /// The launching thread holds these as long as it may use them.
  [[nodiscard]] const std::shared_ptr<call_gate>& gate() const noexcept;
  [[nodiscard]] const std::shared_ptr<completion>& completions() const noexcept;

  /// Returns what NCCL has noticed meanwhile; costs a few loads.
  [[nodiscard]] ncclResult_t poll() noexcept;

  /// Ends all work, as the world is broken: no call is entered from now on, and what
  /// runs is got out of NCCL. `quiet` runs on home when the stream is drained, or when
  /// it did not drain in time and is lost. For an adopted one that is not owned,
  /// `on_break` is called before this returns. Called once. Precondition: its graphs
  /// were dropped.
  void quiesce(work& quiet);
  /// Returns whether the stream did not drain: then it may still touch the buffers.
  [[nodiscard]] bool is_lost() const noexcept { return lost_; }

  /// Frees it in the background: a healthy one with its peers, a broken one alone. One
  /// that takes longer than the options allow counts as the device's stuck one until it
  /// ends. No call is entered from now on.
  void release();

 private:
  enum class stage : unsigned char {
    idle,
    asking,
    making,
    ready,
    quiescing,
    broken,
    over,  ///< there is nothing to free, or it frees itself
  };

  void await_job(void (communicator_life::*job)(async_result&), stage next, work& done);
  void refuse();
  void hear();
  void expire() noexcept;
  void forget_result() noexcept;
  [[nodiscard]] bool abandon_making();
  [[nodiscard]] stage stop_waiting();
  void begin_quiescing(work& quiet);

  reactor& home_;
  std::shared_ptr<communicator_life> life_;
  stage stage_ = stage::idle;
  error_message error_;
  bool lost_ = false;
  work* done_ = nullptr;
  std::shared_ptr<async_result> result_;
  std::shared_ptr<async_result> stands_;
  member_timer<&communicator::expire> deadline_{*this};
};

}  // namespace manyworlds::inline v0::detail::nccl
