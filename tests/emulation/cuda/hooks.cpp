// The hooks for the emulated libnccl.
#include "stream_hooks.h"

#include "entry.hpp"
#include "settings.hpp"
#include "submit.hpp"

using namespace emulated;

cudaError_t cudaEmulatedEnqueueKeyed(cudaStream_t stream, const void* key,
                                     void (*run)(void*), void* argument,
                                     void (*release)(void*)) {
  return enter_stream(ordinary, stream, [&](const stream_ptr& to) {
    const auto loaded =
        load_kernel(machine::here().on(to->device), reinterpret_cast<const void*>(run));
    if (loaded != cudaSuccess) return loaded;
    std::function<void()> at_end;
    if (release != nullptr) at_end = [release, argument] { release(argument); };
    return submit_kernel(
        to, std::make_shared<node>([run, argument] { run(argument); }, at_end, key));
  });
}

cudaError_t cudaEmulatedEnqueue(cudaStream_t stream, void (*run)(void*), void* argument,
                                void (*release)(void*)) {
  return cudaEmulatedEnqueueKeyed(stream, nullptr, run, argument, release);
}

cudaError_t cudaEmulatedLoadKernel(int device, void (*run)(void*)) {
  const auto where = [device] { return device; };
  return attempt_at(where, ordinary, [&] {
    return load_kernel(machine::here().on(device), reinterpret_cast<const void*>(run));
  });
}

void cudaEmulatedAwaitSlice(int device) {
  if (!machine::in_forked_child()) machine::here().on(device).turns.await_turn();
}

int cudaEmulatedGraphsHolding(const void* key) {
  if (machine::in_forked_child()) return 0;
  return machine::here().held.has(key) ? 1 : 0;
}

void cudaEmulatedBreakDevice(int device, cudaError_t error) {
  if (machine::in_forked_child() || !machine::here().has(device)) return;
  machine::here().break_device(device, error);
}

int cudaEmulatedHasContext(int device) {
  if (machine::in_forked_child() || !machine::here().has(device)) return 0;
  return machine::here().on(device).has_context.load(std::memory_order_relaxed) ? 1 : 0;
}

int cudaEmulatedReaches(int device, const void* memory) {
  if (machine::in_forked_child()) return 0;
  const auto block = machine::here().memory.find(memory);
  if (!block || block->kind != memory_kind::device || block->device == device) return 1;
  if (!block->pool || !chosen().reaches_peers) return 1;
  std::lock_guard hold(block->pool->mutex);
  return block->pool->admitted.count(device) != 0 ? 1 : 0;
}
