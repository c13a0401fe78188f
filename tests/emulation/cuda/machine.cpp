#include "machine.hpp"

#include <pthread.h>

#include "settings.hpp"

namespace emulated {
namespace {

std::atomic<bool> forked = false;

}  // namespace

void held_keys::add(const void* key) {
  std::lock_guard hold(mutex_);
  ++counts_[key];
}

void held_keys::remove(const void* key) {
  std::lock_guard hold(mutex_);
  if (--counts_[key] == 0) counts_.erase(key);
}

bool held_keys::has(const void* key) const {
  std::lock_guard hold(mutex_);
  return counts_.count(key) != 0;
}

machine& machine::here() {
  static machine* const one = new machine;
  return *one;
}

bool machine::in_forked_child() { return forked.load(std::memory_order_relaxed); }

machine::machine() {
  for (int ordinal = 0; ordinal < chosen().devices; ++ordinal) {
    devices_.push_back(std::make_unique<device>(ordinal));
    default_pools_.push_back(std::make_shared<memory_pool>(ordinal, true));
    pools.add(default_pools_.back());
  }
  pthread_atfork(nullptr, nullptr, [] { forked.store(true, std::memory_order_relaxed); });
}

bool machine::has(int ordinal) const {
  return ordinal >= 0 && static_cast<std::size_t>(ordinal) < devices_.size();
}

pool_ptr machine::default_pool(int ordinal) const {
  return default_pools_[static_cast<std::size_t>(ordinal)];
}

void machine::break_device(int ordinal, cudaError_t error) {
  auto unbroken = cudaSuccess;
  // First, then the queues: a call that comes between finds one of the two.
  if (!broken_.compare_exchange_strong(unbroken, error)) return;
  // CUDA's documents leave a process in which one device broke nothing but to end, so the
  // others' work goes too.
  static_cast<void>(ordinal);
  for (const auto& each : devices_) each->drop_all();
}

bool machine::next_kernel_breaks() { return ++kernels_ == chosen().sticky_after; }

}  // namespace emulated
