#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <exception>

#include "nccl/communicator_life.hpp"
#include "nccl/cuda_library.hpp"
#include "nccl/nccl_library.hpp"

namespace manyworlds::inline v0::detail::nccl {

namespace {

constexpr duration shortest_pause = std::chrono::microseconds(50);
constexpr duration longest_pause = std::chrono::milliseconds(2);

// A non-blocking split answers success at once (NCCL 2.28.9, src/init.cc,
// ncclCommInitChildComm): the state of the communicator tells.
bool is_under_way(ncclResult_t result) noexcept {
  return result == ncclSuccess || result == ncclInProgress;
}

}  // namespace

void communicator_life::make_unique_id(async_result& heard) {
  begin_making();
  const device_scope here(on->ordinal());
  const nccl_library& nccl = nccl_library::get();
  if (const ncclResult_t result = nccl.ncclGetUniqueId(&id); result != ncclSuccess) {
    error = nccl_error("ncclGetUniqueId", result, nullptr);
  } else {
    // Its thread waits until all members have come to it (2.28.9 src/bootstrap.cc,
    // bootstrapRoot), and nothing ends it earlier.
    on->note_root(1);
    has_root_ = true;
  }
  {
    const std::lock_guard lock(mutex_);
    making_.reset();
  }
  heard.give();
}

void communicator_life::create(async_result& heard) {
  begin_making();
  const thread_range shown(("make communicator " + label).c_str());
  const device_scope here(on->ordinal());
  const auto begun = std::chrono::steady_clock::now();
  const std::size_t used_before = memory_used();
  error = make();
  if (has_root_ && !error) on->note_root(-1);
  costs.time = std::chrono::steady_clock::now() - begun;
  const std::size_t used = memory_used();
  costs.bytes = used > used_before ? used - used_before : 0;
  const nccl_library& nccl = nccl_library::get();
  costs.version = nccl.version;
  // Behind the gate, as it may be given up, and revoked, meanwhile.
  if (nccl.ncclCommMemStats && data && !error && gate->enter()) {
    constexpr int all_bytes = 3;
    std::uint64_t bytes = 0;
    if (nccl.ncclCommMemStats(data, all_bytes, &bytes) == ncclSuccess)
      costs.bytes = bytes;
    gate->leave();
  }
  conclude(heard);
}

void communicator_life::adopt(async_result& heard) {
  begin_making();
  const thread_range shown(("adopt communicator " + label).c_str());
  const device_scope here(on->ordinal());
  const auto begun = std::chrono::steady_clock::now();
  error = take_over();
  costs.time = std::chrono::steady_clock::now() - begun;
  costs.version = nccl_library::get().version;
  conclude(heard);
}

void communicator_life::begin_making() {
  const std::lock_guard lock(mutex_);
  // One that is given up frees itself within the time for that.
  making_.emplace(*on,
                  later(time_point(options.create), options.release).time_since_epoch());
  if (progress_ == progress::given_up) making_->hurry(options.release);
}

void communicator_life::conclude(async_result& heard) {
  bool heeded = false;
  {
    const std::lock_guard lock(mutex_);
    heeded = progress_ == progress::making;
    progress_ = progress::over;
    // Another thread may free the communicator as soon as the lock is released.
    is_shown_ = heeded && !error;
    if (is_shown_) note(owns_communicator ? "made" : "adopted");
  }
  const bool stays = heeded && !error;
  if (!stays) {
    gate->close();
    expect_freeing();
  }
  {
    const std::lock_guard lock(mutex_);
    making_.reset();
  }
  if (heeded) heard.give();
  if (!stays) free_broken();
}

void communicator_life::note(const char* what) const {
  if (!is_traced()) return;
  mark(fmt::format("communicator {} {}: comm {}", label, what, fmt::ptr(data)).c_str());
}

bool communicator_life::give_up_making() {
  const std::lock_guard lock(mutex_);
  if (progress_ == progress::over) return false;
  progress_ = progress::given_up;
  if (making_) making_->hurry(options.release);
  changed_.notify_all();
  return true;
}

bool communicator_life::is_given_up() {
  const std::lock_guard lock(mutex_);
  return progress_ == progress::given_up;
}

bool communicator_life::pause_making(duration pause) {
  std::unique_lock lock(mutex_);
  return !changed_.wait_for(lock, pause,
                            [this] { return progress_ == progress::given_up; });
}

error_message communicator_life::make() {
  if (error_message wrong = make_stream()) return wrong;
  if (error_message wrong = make_communicator()) return wrong;
  return connect();
}

error_message communicator_life::make_stream() {
  stream = options.stream;
  if (!stream) {
    // It does not wait for the legacy stream: users of that know nothing of peers.
    const cudaError_t error =
        cuda_library::get().cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking);
    if (error != cudaSuccess) return cuda_error("cudaStreamCreateWithFlags", error);
    owns_stream = true;
    show_stream(stream, label.c_str());
  }
  try {
    completions = std::make_shared<completion>(on, stream, options.completion);
  } catch (const std::exception& none) {
    return {cause::out_of_resources, none.what()};
  }
  return {};
}

ncclConfig_t communicator_life::config() const {
  ncclConfig_t made = NCCL_CONFIG_INITIALIZER;
  made.minCTAs = 1;
  made.maxCTAs = occupied_by(options);
  // A cluster's blocks would have to fit one GPC at the same time: with the others'
  // kernels in it, a kernel may wait although as many multiprocessors are free as it
  // needs.
  made.cgaClusterSize = 0;
  // Shared resources share the flag that aborts them.
  made.splitShare = 0;
#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 27, 0)
  made.shrinkShare = 0;
#endif
  return made;
}

error_message communicator_life::make_communicator() {
  const nccl_library& nccl = nccl_library::get();
  ncclConfig_t chosen = config();
#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 27, 0)
  chosen.commName = name.c_str();
#endif
  if (options.creation == creation_by::split && size > 1) return split(chosen);
  chosen.blocking = 1;
  const ncclResult_t result = nccl.ncclCommInitRankConfig(&data, size, id, rank, &chosen);
  if (result == ncclSuccess) return {};
  return nccl_error("ncclCommInitRankConfig", result, nullptr);
}

// While ranks are missing, NCCL waits in the background and the call can be given up. The
// communicator for data is another, since each call on such a one starts a thread.
error_message communicator_life::split(ncclConfig_t chosen) {
  const nccl_library& nccl = nccl_library::get();
  chosen.blocking = 0;
  ncclResult_t result = nccl.ncclCommInitRankConfig(&control, size, id, rank, &chosen);
  if (is_under_way(result)) result = settle(control);
  if (result != ncclSuccess) {
    return nccl_error("ncclCommInitRankConfig", result, control);
  }
  chosen.blocking = 1;
  result = nccl.ncclCommSplit(control, 0, rank, &data, &chosen);
  if (is_under_way(result)) result = settle(control);
  if (result == ncclSuccess) return {};
  const error_message failed = nccl_error("ncclCommSplit", result, control);
  // If it is still under way, this ends it, and tells only then what became of the other.
  (void)nccl.ncclCommAbort(control);
  control = nullptr;
  return failed;
}

ncclResult_t communicator_life::settle(ncclComm_t communicator) {
  const nccl_library& nccl = nccl_library::get();
  duration pause = shortest_pause;
  for (;;) {
    ncclResult_t state = ncclInProgress;
    const ncclResult_t asked = nccl.ncclCommGetAsyncError(communicator, &state);
    if (asked != ncclSuccess) return asked;
    if (state != ncclInProgress || !pause_making(pause)) return state;
    pause = std::min(pause + pause / 4, longest_pause);
    if (pause == longest_pause) on->ask_for_errors();
    if (on->failed()) return ncclUnhandledCudaError;
  }
}

error_message communicator_life::take_over() {
  const nccl_library& nccl = nccl_library::get();
  owns_communicator = options.owns_communicator;
  data = options.communicator;
  int count = 0;
  int own = 0;
  int ordinal = 0;
  ncclResult_t state = ncclSuccess;
  ncclResult_t result = nccl.ncclCommGetAsyncError(data, &state);
  if (result == ncclSuccess) result = state;
  if (result == ncclSuccess) result = nccl.ncclCommCount(data, &count);
  if (result == ncclSuccess) result = nccl.ncclCommUserRank(data, &own);
  if (result == ncclSuccess) result = nccl.ncclCommCuDevice(data, &ordinal);
  if (result != ncclSuccess) {
    return {cause::nccl_failed,
            "the given communicator cannot be used: " + nccl.describe(result, data)};
  }
  const auto differs = [](const char* what, int its, int ours) {
    return error_message{
        cause::size_disagrees,
        fmt::format("the given communicator has {} {}, but the world has {}", what, its,
                    ours)};
  };
  if (count != size) return differs("size", count, size);
  if (own != rank) return differs("rank", own, rank);
  if (ordinal != on->ordinal()) return differs("device", ordinal, on->ordinal());
  if (error_message wrong = make_stream()) return wrong;
  return connect();
}

error_message communicator_life::nccl_error(const char* call, ncclResult_t result,
                                            ncclComm_t communicator) const {
  return {cause::nccl_failed,
          fmt::format("{} failed: {}", call,
                      nccl_library::get().describe(result, communicator))};
}

error_message communicator_life::cuda_error(const char* call, cudaError_t error) const {
  if (is_sticky(error)) on->note_failed(error);
  return {cause::device_failed,
          fmt::format("{} failed: {}", call, cuda_library::get().describe(error))};
}

std::size_t communicator_life::memory_used() const {
  std::size_t unused = 0;
  std::size_t total = 0;
  const cudaError_t error = cuda_library::get().cudaMemGetInfo(&unused, &total);
  return error == cudaSuccess ? total - unused : 0;
}

}  // namespace manyworlds::inline v0::detail::nccl
