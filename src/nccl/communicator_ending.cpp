#include <algorithm>
#include <chrono>
#include <utility>
#include <vector>

#include "nccl/communicator_life.hpp"
#include "nccl/cuda_library.hpp"
#include "nccl/nccl_library.hpp"
#include "nccl/stuck_call.hpp"
#include "nccl/waiting.hpp"

namespace manyworlds::inline v0::detail::nccl {

namespace {

/// A call that is not stuck has returned by then, if its thread had a CPU.
constexpr duration call_patience = std::chrono::milliseconds(10);
/// Not longer, as other worlds' operations are behind it. Nothing is accused of anything.
constexpr duration launcher_patience = std::chrono::milliseconds(500);

time_point after(duration span) { return later(std::chrono::steady_clock::now(), span); }

}  // namespace

bool communicator_life::revoke() {
  const nccl_library& nccl = nccl_library::get();
  // The gate is closed: a thread that is still inside after this time is stuck.
  stuck_call call(gate->thread());
  (void)await_polling(
      [&] { return !gate->is_inside() || call.lasted() >= call_patience; },
      after(launcher_patience));
  const std::lock_guard lock(revoking_);
  if (is_revoked_) return true;
  if (!may_be_revoked_ || !nccl.ncclCommRevoke) return false;
  may_be_revoked_ = false;
  expect_freeing();
  // It raises the same flags as an abort but frees nothing, so that a thread that is
  // inside comes out alive: what the contract of an abort forbids. In a group it raises
  // them, and CUDA is called when the group ends (2.30.7 src/init.cc, src/group.cc): that
  // may wait until the kernel ends which the flags are to end.
  ncclResult_t result = nccl.ncclGroupStart();
  if (result != ncclSuccess) return false;
  const ncclResult_t asked = nccl.ncclCommRevoke(data, 0);
  if (asked == ncclSuccess || asked == ncclInProgress) {
    const device_scope here(on->ordinal());
    result = nccl.ncclGroupEnd();
  } else {
    // No flag is raised, so a call to CUDA might wait for the kernel for as long as it
    // runs.
    (void)nccl.ncclGroupEnd();
    result = asked;
  }
  is_revoked_ = result == ncclSuccess || result == ncclInProgress;
  return is_revoked_;
}

void communicator_life::break_up() {
  if (!owns_communicator) return;
  if (!revoke()) free_broken();
}

void communicator_life::await_quiet(async_result& heard) {
  const device_scope here(on->ordinal());
  const auto is_over = [this] { return lost.load(std::memory_order_relaxed); };
  const std::uint64_t call = on->launching().running();
  const bool left =
      await_polling([&] { return is_over() || !gate->is_inside(); },
                    after(std::min(options.blocked_call, launcher_patience)));
  if (!left && options.launch == launch_on::own_thread) {
    // Other worlds' operations are behind it.
    (void)on->launching().replace(call, on->helpers());
  }
  (void)await_polling([&] { return is_over() || (!gate->is_inside() && is_drained()); });
  if (!is_over()) {
    is_quiet.store(true, std::memory_order_relaxed);
    heard.give();
  }
  expect_watching(false);
}

void communicator_life::expect_watching(bool watched) {
  const std::lock_guard lock(mutex_);
  watched_ = watched;
  changed_.notify_all();
}

bool communicator_life::is_drained() const {
  const cuda_library& cuda = cuda_library::get();
  const cudaError_t error = cuda.cudaStreamQuery(stream);
  if (error == cudaSuccess) return true;
  (void)cuda.cudaGetLastError();
  // Another error says nothing of the stream, which may be captured.
  if (!is_sticky(error)) return false;
  // The device runs nothing from now on.
  on->note_failed(error);
  return true;
}

void communicator_life::expect_freeing() {
  const std::lock_guard lock(mutex_);
  if (!freeing_ && !ending_) ending_.emplace(*on, options.release);
}

bool communicator_life::begin_freeing() {
  expect_freeing();
  const std::lock_guard lock(mutex_);
  return !std::exchange(freeing_, true);
}

void communicator_life::free_healthy() {
  if (!begin_freeing()) return;
  (void)await_polling([this] { return !gate->is_inside(); });
  const device_scope here(on->ordinal());
  const nccl_library& nccl = nccl_library::get();
  if (owns_communicator) {
    // What was sent last may still be on its way to a peer: an abort would cut it
    // short. These wait for peers; one that is stuck in them can no longer be aborted,
    // since the abort of a blocking communicator must not meet another call.
    (void)nccl.ncclCommFinalize(data);
    (void)nccl.ncclCommDestroy(data);
  }
  // Nothing was ever sent on this one.
  if (control) (void)nccl.ncclCommAbort(control);
  free_rest();
}

void communicator_life::free_broken() {
  if (!begin_freeing()) return;
  (void)await_polling([this] { return !gate->is_inside(); });
  {
    const std::lock_guard lock(revoking_);
    may_be_revoked_ = false;
  }
  std::vector<ncclComm_t> broken;
  if (data && owns_communicator) broken.push_back(data);
  if (control) broken.push_back(control);
  if (broken.empty()) return free_rest();
  on->abort(std::move(broken), [self = shared_from_this()] { self->free_rest(); });
}

void communicator_life::free_rest() {
  {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return !watched_; });
  }
  const device_scope here(on->ordinal());
  // One of the user's may be gone by now.
  const bool drained = owns_stream ? is_drained() : is_quiet.load();
  if (completions) completions->close(drained);
  // What is still on it goes on; it is freed after that.
  if (owns_stream) (void)cuda_library::get().cudaStreamDestroy(stream);
  if (is_shown_) note(owns_communicator ? "freed" : "given back");
  const std::lock_guard lock(mutex_);
  ending_.reset();
}

}  // namespace manyworlds::inline v0::detail::nccl
