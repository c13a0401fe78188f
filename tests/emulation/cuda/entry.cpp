#include "entry.hpp"

#include <cuda_runtime_api.h>

#include <vector>

#include "settings.hpp"

namespace emulated {
namespace {

cudaError_t& last_of_this_thread() {
  thread_local cudaError_t last = cudaSuccess;
  return last;
}

struct contexts_of_thread {
  std::vector<int> current;
  int device = 0;
};

contexts_of_thread& of_this_thread() {
  thread_local contexts_of_thread mine;
  return mine;
}

// What no call gets past, and no cudaGetLastError clears.
cudaError_t missing() {
  if (chosen().driver < runtime_version / 1000 * 1000) return cudaErrorInsufficientDriver;
  if (chosen().devices <= 0) return cudaErrorNoDevice;
  return cudaSuccess;
}

}  // namespace

int current_device() {
  const contexts_of_thread& mine = of_this_thread();
  return mine.current.empty() ? mine.device : mine.current.back();
}

void set_device(int ordinal) {
  contexts_of_thread& mine = of_this_thread();
  mine.device = ordinal;
  if (!mine.current.empty()) mine.current.pop_back();
  push_context(ordinal);
}

bool has_context() { return !of_this_thread().current.empty(); }

void push_context(int ordinal) {
  machine::here().on(ordinal).has_context.store(true, std::memory_order_relaxed);
  of_this_thread().current.push_back(ordinal);
}

int pop_context() {
  contexts_of_thread& mine = of_this_thread();
  if (mine.current.empty()) return -1;
  const int ordinal = mine.current.back();
  mine.current.pop_back();
  return ordinal;
}

bool& in_host_function() {
  thread_local bool inside = false;
  return inside;
}

cudaError_t refusal(const call_rules& rules) {
  if (machine::in_forked_child()) return cudaErrorInitializationError;
  if (const auto none = missing(); none != cudaSuccess) return none;
  if (in_host_function()) return cudaErrorNotPermitted;
  machine& all = machine::here();
  if (const auto error = all.broken(); error != cudaSuccess)
    return rules.when_broken || (rules.asks_work && chosen().idle_hides_error)
               ? cudaSuccess
               : error;
  return rules.unsafe ? all.capturing.refuse_unsafe_call() : cudaSuccess;
}

cudaError_t noted(cudaError_t result) {
  if (result != cudaSuccess) last_of_this_thread() = result;
  return result;
}

cudaError_t last_error(bool forget) {
  cudaError_t& last = last_of_this_thread();
  if (machine::in_forked_child()) return last;
  if (last != cudaSuccess && missing() != cudaSuccess) return last;
  // Not that of a process that never called CUDA: asking must not start it.
  if (last != cudaSuccess)
    if (const auto broken = machine::here().broken(); broken != cudaSuccess)
      return broken;
  const auto result = last;
  if (forget) last = cudaSuccess;
  return result;
}

stream_ptr stream_of(cudaStream_t handle) {
  device& current = machine::here().on(current_device());
  if (handle == nullptr || handle == cudaStreamLegacy) return current.legacy;
  if (handle == cudaStreamPerThread) return current.of_this_thread();
  return machine::here().streams.find(handle);
}

}  // namespace emulated
