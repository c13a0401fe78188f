// The peers are connected before the world may use its communicator: NCCL connects at the
// first use, within the call, which would hold up the launching thread.
#include <chrono>
#include <cstddef>
#include <exception>
#include <optional>

#include "nccl/communicator_life.hpp"
#include "nccl/cuda_library.hpp"
#include "nccl/nccl_library.hpp"
#include "nccl/pool_state.hpp"
#include "nccl/waiting.hpp"

namespace manyworlds::inline v0::detail::nccl {

namespace {

/// Of the buffer that each rank has a part of.
constexpr std::size_t part_bytes = 16;
/// Before, NCCL uses the buffers of ranks in the same process directly: the device's own
/// pool, which no other device reaches, will not do.
constexpr int own_buffers_version = 22300;

std::byte* part(void* memory, int rank) {
  return static_cast<std::byte*>(memory) + static_cast<std::size_t>(rank) * part_bytes;
}

}  // namespace

error_message communicator_life::connect() {
  const cuda_library& cuda = cuda_library::get();
  {
    // From here on NCCL is got out of its calls by revoking.
    const std::lock_guard lock(revoking_);
    may_be_revoked_ = owns_communicator;
  }
  launch_turn turn;
  if (!await_connecting(turn)) return {cause::broken_by_user, "it was given up"};
  void* memory = nullptr;
  // One part more, for what the others' parts are made of.
  const std::size_t bytes = (static_cast<std::size_t>(size) + 1) * part_bytes;
  // Freed by CUDA when what is in it has been.
  std::optional<pool_state> reached_by_peers;
  cudaError_t error = cudaSuccess;
  if (nccl_library::get().version < own_buffers_version) {
    try {
      reached_by_peers.emplace(cuda, on->ordinal());
    } catch (const std::exception& none) {
      return {cause::device_failed, none.what()};
    }
    error = cuda.cudaMallocFromPoolAsync(&memory, bytes, reached_by_peers->pool, stream);
  } else {
    error = cuda.cudaMallocAsync(&memory, bytes, stream);
  }
  if (error != cudaSuccess) return cuda_error("memory for connecting", error);
  error_message trouble{cause::broken_by_user, "it was given up"};
  if (gate->enter()) {
    trouble = enqueue_warm_up(memory);
    gate->leave();
  }
  // Others launch behind it from here on.
  turn.give_up();
  (void)cuda.cudaFreeAsync(memory, stream);
  if (trouble) return trouble;

  const auto ended = [&] {
    error = cuda.cudaStreamQuery(stream);
    if (error == cudaErrorNotReady) (void)cuda.cudaGetLastError();
    return error != cudaErrorNotReady || is_given_up();
  };
  (void)await_polling(ended);
  if (error == cudaErrorNotReady) return {cause::broken_by_user, "it was given up"};
  if (error != cudaSuccess) return cuda_error("connecting the peers", error);
  // What was aborted succeeds as well.
  ncclResult_t state = ncclSuccess;
  (void)nccl_library::get().ncclCommGetAsyncError(data, &state);
  if (state != ncclSuccess) return nccl_error("connecting the peers", state, data);
  return {};
}

void communicator_life::let_connect(launch_turn turn) {
  const std::lock_guard lock(mutex_);
  // Nothing takes the turn now: it is given up here.
  if (progress_ != progress::making) return;
  turn_ = std::move(turn);
  may_connect_ = true;
  changed_.notify_all();
}

bool communicator_life::await_connecting(launch_turn& turn) {
  if (stands) stands->give();
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] {
    return !stands || may_connect_ || progress_ == progress::given_up;
  });
  turn = std::move(turn_);
  return progress_ != progress::given_up;
}

error_message communicator_life::enqueue_warm_up(void* memory) {
  const nccl_library& nccl = nccl_library::get();
  std::byte* const own = part(memory, size);
  ncclResult_t result =
      nccl.ncclAllReduce(own, own, 1, ncclFloat32, ncclSum, data, stream);
  if (result == ncclSuccess) {
    result = nccl.ncclAllGather(own, memory, part_bytes, ncclInt8, data, stream);
  }
  if (result == ncclSuccess && size > 1) {
    result = nccl.ncclGroupStart();
    for (int peer = 0; peer < size && result == ncclSuccess; ++peer) {
      if (peer == rank) continue;
      result = nccl.ncclSend(own, 1, ncclFloat32, peer, data, stream);
      if (result != ncclSuccess) break;
      result = nccl.ncclRecv(part(memory, peer), 1, ncclFloat32, peer, data, stream);
    }
    // Ended also after a failure, or the thread's later calls would wait for it.
    const ncclResult_t ended = nccl.ncclGroupEnd();
    if (result == ncclSuccess) result = ended;
  }
  if (result == ncclInProgress) {
    (void)settle(data);
    return {cause::unsupported,
            "the given communicator is non-blocking, which costs a thread for each call: "
            "make it with blocking = 1"};
  }
  if (result != ncclSuccess) return nccl_error("connecting the peers", result, data);
  return {};
}

}  // namespace manyworlds::inline v0::detail::nccl
