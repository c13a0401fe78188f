// Communicator: one world's, with its stream, from making to freeing.
#pragma once

#include <cuda_runtime_api.h>
#include <nccl.h>

#include <memory>

#include "answer.hpp"
#include "call_gate.hpp"
#include "completion.hpp"
#include "device.hpp"
#include "launch_order.hpp"
#include "manyworlds/backend/device_part.hpp"
#include "manyworlds/coro/timer_queue.hpp"
#include "manyworlds/inline_text.hpp"
#include "manyworlds/io/reactor.hpp"
#include "manyworlds/nccl/device_options.hpp"
#include "objection.hpp"

namespace manyworlds::inline v0::nccl {

struct communicator_life;

/// What blocks runs on helper threads, with deadlines on the home reactor, which never
/// waits. Used and destroyed on the home reactor's thread, unless said otherwise; what is
/// in progress then goes on in the background and frees everything. At most one of
/// `make_unique_id`, `create` and `adopt` at a time; each ends by running `done` once on
/// the home reactor, unless the communicator is quiesced, released or destroyed before:
/// then not at all.
class communicator {
 public:
  communicator(std::shared_ptr<device> on, reactor& home, const device_options& options,
               const world_name& name, std::uint64_t epoch);
  communicator(const communicator&) = delete;
  communicator& operator=(const communicator&) = delete;
  /// Releases it.
  ~communicator();

  /// What rank 0 gives to all members for `create`. Its process must live until all have
  /// created.
  void make_unique_id(work& done);
  [[nodiscard]] const ncclUniqueId& unique_id() const noexcept;

  /// By all members at about the same time; peers are connected when it is done.
  void create(const ncclUniqueId& id, int rank, int size, work& done);
  /// Instead, what the options bring; a stream is made if they bring none. By all members
  /// too, as it proves that the peers answer.
  void adopt(int rank, int size, work& done);
  /// Before `create` or `adopt`: when all is made but for connecting the peers, `stands`
  /// runs on home, once, and the peers are connected only after `connect`. The time
  /// until then counts.
  void connect_later(work& stands);
  /// Gives `turn` up when all that connecting launches is launched. Once.
  void connect(launch_turn turn);
  /// What came of it, in `done`; empty if it went well.
  [[nodiscard]] const objection& error() const noexcept { return error_; }

  // When it is ready.
  [[nodiscard]] bool is_ready() const noexcept { return stage_ == stage::ready; }
  [[nodiscard]] ncclComm_t handle() const noexcept;
  [[nodiscard]] cudaStream_t stream() const noexcept;
  [[nodiscard]] device_costs costs() const;
  [[nodiscard]] device& on() const noexcept;
  /// For the launching thread, which holds them as long as it may use them.
  [[nodiscard]] const std::shared_ptr<call_gate>& gate() const noexcept;
  [[nodiscard]] const std::shared_ptr<completion>& completions() const noexcept;

  /// What NCCL has noticed meanwhile; a few loads.
  [[nodiscard]] ncclResult_t look() noexcept;

  /// The world is broken: nothing is entered any more, what runs is got out of NCCL, and
  /// `quiet` runs on home when the stream is drained, or when it did not drain in time
  /// and is lost. An adopted one that is not owned: `on_break` is called before this
  /// returns. Its graphs were dropped before. Once.
  void quiesce(work& quiet);
  /// The stream did not drain: it may still touch the buffers.
  [[nodiscard]] bool is_lost() const noexcept { return lost_; }

  /// Frees it in the background: a healthy one with its peers, a broken one alone. One
  /// that takes longer than the options allow counts as the device's stuck one until it
  /// ends. Nothing is entered any more.
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

  struct deadline final : timer {
    explicit deadline(communicator& of)
        : timer([](timer& t) noexcept { static_cast<deadline&>(t).of.expire(); }),
          of(of) {}
    communicator& of;
  };

  void await_job(void (communicator_life::*job)(answer&), stage next, work& done);
  void refuse();
  void hear();
  void expire() noexcept;
  void forget_answer() noexcept;
  [[nodiscard]] bool abandon_making();
  [[nodiscard]] stage stop_waiting();
  void begin_quiescing(work& quiet);

  reactor& home_;
  std::shared_ptr<communicator_life> life_;
  stage stage_ = stage::idle;
  objection error_;
  bool lost_ = false;
  work* done_ = nullptr;
  std::shared_ptr<answer> answer_;
  std::shared_ptr<answer> stands_;
  deadline deadline_;
};

}  // namespace manyworlds::inline v0::nccl
