#include "nccl/device.hpp"

#include <algorithm>
#include <chrono>
#include <memory>
#include <thread>
#include <utility>

#include "nccl/cuda_library.hpp"
#include "nccl/nccl_library.hpp"

namespace manyworlds::inline v0::detail::nccl {

namespace {

/// NCCL frees several in parallel from here on.
constexpr int group_abort_version = 22200;
/// Peers' notices of one death come within this time.
constexpr std::chrono::milliseconds gathering(1);
/// The driver answers a query faster than this unless another call holds its lock.
constexpr std::chrono::milliseconds longest_answer(20);

time_point now() { return std::chrono::steady_clock::now(); }

}  // namespace

device::device(int ordinal, std::string identity, int multiprocessors, int capability,
               std::shared_ptr<helper_threads> helpers)
    : ordinal_(ordinal),
      identity_(std::move(identity)),
      multiprocessors_(multiprocessors),
      capability_(capability),
      helpers_(std::move(helpers)),
      launcher_(ordinal),
      watcher_(ordinal) {}

bool device::reserve(int multiprocessors) noexcept {
  int before = reserved_.load(std::memory_order_relaxed);
  do {
    if (multiprocessors > multiprocessors_ - before) return false;
  } while (!reserved_.compare_exchange_weak(before, before + multiprocessors,
                                            std::memory_order_relaxed));
  return true;
}

void device::give_back(int multiprocessors) noexcept {
  reserved_.fetch_sub(multiprocessors, std::memory_order_relaxed);
}

device::lifecycle::lifecycle(device& on, duration allowed) : on_(on) {
  const std::lock_guard lock(on_.mutex_);
  entry_ = on_.lifecycles_.insert(on_.lifecycles_.end(), later(now(), allowed));
  on_.lifecycles_count_.fetch_add(1, std::memory_order_relaxed);
}

device::lifecycle::~lifecycle() {
  const std::lock_guard lock(on_.mutex_);
  on_.lifecycles_.erase(entry_);
  on_.lifecycles_count_.fetch_sub(1, std::memory_order_release);
  on_.changed_.notify_all();
}

void device::lifecycle::hurry(duration allowed) {
  const std::lock_guard lock(on_.mutex_);
  *entry_ = std::min(*entry_, later(now(), allowed));
  on_.changed_.notify_all();
}

int device::stuck() const {
  const std::lock_guard lock(mutex_);
  const auto overdue = [at = now()](time_point due) { return due <= at; };
  return leaked_.load(std::memory_order_relaxed) +
         static_cast<int>(std::count_if(lifecycles_.begin(), lifecycles_.end(), overdue));
}

void device::await_lifecycles(time_point latest) const {
  std::unique_lock lock(mutex_);
  for (;;) {
    const time_point at = now();
    time_point next = time_point::max();
    for (const time_point due : lifecycles_) {
      if (due > at) next = std::min(next, due);
    }
    if (next == time_point::max() || at >= latest) return;
    changed_.wait_until(lock, std::min(next, latest));
  }
}

void device::abort(std::vector<ncclComm_t> communicators, std::function<void()> freed) {
  {
    const std::lock_guard lock(mutex_);
    gathered_.push_back({std::move(communicators), std::move(freed)});
    if (gathered_.size() > 1) return;
  }
  // What waits to be freed holds this device.
  if (helpers_->post([this] { abort_gathered(); })) return;
  std::vector<broken> left;
  {
    const std::lock_guard lock(mutex_);
    left.swap(gathered_);
  }
  for (std::size_t i = 0; i < left.size(); ++i) note_leaked();
}

void device::abort_gathered() {
  std::this_thread::sleep_for(gathering);
  std::vector<broken> together;
  {
    const std::lock_guard lock(mutex_);
    together.swap(gathered_);
  }
  const nccl_library& nccl = nccl_library::get();
  if (nccl.version < group_abort_version) return abort_side_by_side(std::move(together));
  // In a group it raises the flags, and CUDA is called when the group ends: the other way
  // round a thread that waits in CUDA for one of these kernels would hold us up.
  (void)nccl.ncclGroupStart();
  for (const broken& each : together) each.abort();
  {
    const device_scope here(ordinal_);
    (void)nccl.ncclGroupEnd();
  }
  for (broken& each : together) each.freed();
  // With the last of them the device may go.
}

// Outside of a group an abort raises its own flag and waits for its own kernel, which may
// stand behind another's in a connection that they share. So none waits for another's.
void device::abort_side_by_side(std::vector<broken> together) {
  const auto abort_one = [ordinal = ordinal_](broken& one) {
    {
      const device_scope here(ordinal);
      one.abort();
    }
    one.freed();
  };
  // Each holds the device: the last is aborted here, and nothing is touched after it.
  while (together.size() > 1) {
    const auto one = std::make_shared<broken>(std::move(together.back()));
    together.pop_back();
    const auto run = [one, abort_one] { abort_one(*one); };
    if (!helpers_->post(run)) run();
  }
  abort_one(together.front());
}

void device::broken::abort() const {
  for (ncclComm_t communicator : communicators) {
    (void)nccl_library::get().ncclCommAbort(communicator);
  }
}

void device::note_failed(cudaError_t error) noexcept {
  int none = cudaSuccess;
  failed_.compare_exchange_strong(none, error, std::memory_order_relaxed);
}

std::optional<cudaError_t> device::failed() const noexcept {
  const int error = failed_.load(std::memory_order_relaxed);
  if (error == cudaSuccess) return std::nullopt;
  return static_cast<cudaError_t>(error);
}

std::optional<cudaError_t> device::check() noexcept {
  if (const auto error = failed()) return error;
  // Acquire: pairs with `ask`, after which the watcher does not touch the question.
  if (!is_asked_.exchange(true, std::memory_order_acquire)) {
    watcher_.add(shared_from_this());
  }
  return std::nullopt;
}

duration device::driver_is_free_for(time_point at) const noexcept {
  // Acquire: pairs with `ask`, so that no late answer is missed between the two.
  const time_point asked{duration{asked_at_.load(std::memory_order_acquire)}};
  if (asked != time_point() && at - asked > longest_answer) return duration::zero();
  return at - time_point{duration{held_until_.load(std::memory_order_relaxed)}};
}

watcher::progress device::ask() noexcept {
  const time_point asked = now();
  asked_at_.store(asked.time_since_epoch().count(), std::memory_order_relaxed);
  ask_for_errors();
  if (const time_point answered = now(); answered - asked > longest_answer) {
    held_until_.store(answered.time_since_epoch().count(), std::memory_order_relaxed);
  }
  asked_at_.store(0, std::memory_order_release);
  // From here on it may be added again.
  is_asked_.store(false, std::memory_order_release);
  return watcher::progress::over;
}

void device::ask_for_errors() noexcept {
  const std::unique_lock lock(probing_, std::try_to_lock);
  // Another thread is asking, and may be waiting for the driver.
  if (!lock || !probe_) return;
  const cuda_library& cuda = cuda_library::get();
  // An idle stream may say success of a device that has failed, and what is enqueued
  // there shows it. One mark at a time: where streams share a hardware queue it may stand
  // behind a kernel that hangs, and a full queue blocks the call.
  cudaError_t error = cuda.cudaEventQuery(probe_mark_);
  if (error == cudaSuccess) error = cuda.cudaEventRecord(probe_mark_, probe_);
  if (error == cudaSuccess) return;
  (void)cuda.cudaGetLastError();
  if (is_sticky(error)) note_failed(error);
}

void device::free_probe() noexcept {
  const std::lock_guard lock(probing_);
  const cuda_library& cuda = cuda_library::get();
  (void)cuda.cudaEventDestroy(std::exchange(probe_mark_, nullptr));
  (void)cuda.cudaStreamDestroy(std::exchange(probe_, nullptr));
}

}  // namespace manyworlds::inline v0::detail::nccl
