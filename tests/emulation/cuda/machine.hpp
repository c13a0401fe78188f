// All that the emulated driver knows: the devices of this process and what lives on them.
#pragma once

#include <driver_types.h>

#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "capture.hpp"
#include "device.hpp"
#include "event.hpp"
#include "handles.hpp"
#include "memory.hpp"

namespace emulated {

// A graph made ready to run. Its launches follow one another, on whatever streams.
struct graph_program {
  std::vector<node_ptr> nodes;
  std::mutex running;
  std::mutex launching;
  moment_ptr last_launch;
};

// Who has work in living graphs.
class held_keys {
 public:
  void add(const void* key);
  void remove(const void* key);
  bool has(const void* key) const;

 private:
  mutable std::mutex mutex_;
  std::map<const void*, int> counts_;
};

class machine {
 public:
  // Never destroyed: workers and threads' ends use it while the process exits.
  static machine& here();

  // A forked child has the parent's state and none of its threads: CUDA refuses it.
  static bool in_forked_child();

  // What a process broken by a sticky error answers to everything.
  cudaError_t broken() const { return broken_.load(); }
  void break_device(int ordinal, cudaError_t error);

  device& on(int ordinal) { return *devices_[static_cast<std::size_t>(ordinal)]; }
  bool has(int ordinal) const;
  pool_ptr default_pool(int ordinal) const;

  // Counts what runs on the device; true for the one that is to break it.
  bool next_kernel_breaks();

  handles<stream> streams;
  handles<event> events;
  handles<graph> graphs;
  handles<graph_program> programs;
  handles<memory_pool> pools;
  captures capturing;
  memory_map memory;
  held_keys held;

 private:
  machine();

  std::vector<std::unique_ptr<device>> devices_;
  std::vector<pool_ptr> default_pools_;
  std::atomic<cudaError_t> broken_ = cudaSuccess;
  std::atomic<long> kernels_ = 0;
};

}  // namespace emulated
