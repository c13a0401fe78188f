// Communicator life: what is made and freed, by its last holder.
#pragma once

#include <cuda_runtime_api.h>
#include <nccl.h>

#include <atomic>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "manyworlds/detail/device_part.hpp"
#include "manyworlds/inline_text.hpp"
#include "manyworlds/nccl/device_options.hpp"
#include "nccl/async_result.hpp"
#include "nccl/call_gate.hpp"
#include "nccl/completion.hpp"
#include "nccl/device.hpp"
#include "nccl/error_message.hpp"
#include "nccl/launch_order.hpp"
#include "nccl/ranges.hpp"

namespace manyworlds::inline v0::detail::nccl {

/// The communicator and the jobs on helper threads, which go on without it, share it.
/// All functions block, and are for helper threads, unless said otherwise.
struct communicator_life : std::enable_shared_from_this<communicator_life> {
  communicator_life(std::shared_ptr<device> on, const device_options& options,
                    const world_name& world, std::uint64_t epoch)
      : on(std::move(on)),
        options(options),
        name(world.str()),
        label(label_of(world, epoch)) {}

  const std::shared_ptr<device> on;
  const device_options options;
  /// NCCL keeps the pointer (2.27.3 to 2.30.7 src/init.cc, parseCommConfig): profilers'
  /// plugins read it while a communicator is made, in the background too.
  const std::string name;
  /// Ranges and marks call the world by this: "gpus@1".
  const std::string label;
  const std::shared_ptr<call_gate> gate = std::make_shared<call_gate>();
  ncclUniqueId id{};
  int rank = 0;
  int size = 0;

  // Made: written by the making job before it answers, and only read afterwards.
  error_message error;
  ncclComm_t control = nullptr;
  ncclComm_t data = nullptr;
  bool owns_communicator = true;
  cudaStream_t stream = nullptr;
  bool owns_stream = false;
  std::shared_ptr<completion> completions;
  device_costs costs;
  /// It is set before the making, and given when only the peers are left to be
  /// connected.
  std::shared_ptr<async_result> stands;

  // Making. What fails, or is given up, frees itself.
  void make_unique_id(async_result& heard);
  void create(async_result& heard);
  void adopt(async_result& heard);
  /// Says that its end is no longer awaited. Returns true if it frees itself. Thread:
  /// any; does not block.
  [[nodiscard]] bool give_up_making();

  // Ending.
  /// Gets a call, and the stream, out of NCCL; frees nothing. Returns false if the
  /// library cannot, or what is made is not that far.
  bool revoke();
  /// Ends a broken one: revokes it, or frees it at once where the library cannot
  /// revoke.
  void break_up();
  /// Answers when nothing is called and the stream is drained; gives up when `lost`.
  void await_quiet(async_result& heard);
  void free_healthy();
  void free_broken();
  std::atomic<bool> lost{false};
  /// The stream was seen drained, and gets nothing more.
  std::atomic<bool> is_quiet{false};

  // Any thread, do not block.
  /// Lets the peers be connected. Unless `stands` is set they are connected at once.
  void let_connect(launch_turn turn);
  /// Called before `await_quiet` is posted: the stream stays until that has returned.
  void expect_watching(bool watched);
  /// Called before its freeing is posted, so that the end of the runtime waits for it.
  void expect_freeing();

 private:
  enum class progress : unsigned char { making, given_up, over };

  void conclude(async_result& heard);
  [[nodiscard]] error_message make();
  [[nodiscard]] error_message make_communicator();
  [[nodiscard]] error_message split(ncclConfig_t config);
  [[nodiscard]] error_message take_over();
  [[nodiscard]] error_message make_stream();
  [[nodiscard]] error_message connect();
  /// Returns false if it was given up meanwhile.
  [[nodiscard]] bool await_connecting(launch_turn& turn);
  [[nodiscard]] error_message enqueue_warm_up(void* memory);
  [[nodiscard]] ncclConfig_t config() const;
  /// Polls one that works in the background. Returns ncclInProgress only if it was
  /// given up.
  [[nodiscard]] ncclResult_t settle(ncclComm_t communicator);
  [[nodiscard]] error_message nccl_error(const char* call, ncclResult_t result,
                                         ncclComm_t communicator) const;
  [[nodiscard]] error_message cuda_error(const char* call, cudaError_t error) const;
  [[nodiscard]] bool pause_making(duration pause);
  [[nodiscard]] bool is_given_up();
  [[nodiscard]] bool begin_freeing();
  void free_rest();
  void note(const char* what) const;
  [[nodiscard]] bool is_drained() const;
  [[nodiscard]] std::size_t memory_used() const;
  void begin_making();

  bool has_root_ = false;  ///< of the jobs that make it, one after the other
  bool is_shown_ = false;  ///< marked as made, so to be marked as freed

  std::mutex mutex_;
  std::condition_variable changed_;
  progress progress_ = progress::making;
  bool freeing_ = false;
  bool watched_ = false;
  bool may_connect_ = false;
  launch_turn turn_;  ///< to connect, until that begins
  std::optional<device::lifecycle> making_;
  std::optional<device::lifecycle> ending_;

  /// It is held while the communicator is revoked, which is not freed meanwhile.
  std::mutex revoking_;
  bool may_be_revoked_ = false;
  bool is_revoked_ = false;
};

}  // namespace manyworlds::inline v0::detail::nccl
