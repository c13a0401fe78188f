// Device options: how a world uses its GPU.
#pragma once

#include <chrono>
#include <cstdint>

#include "manyworlds/time.hpp"

struct ncclComm;
struct CUstream_st;

namespace manyworlds::inline v0 {

/// Says which thread calls NCCL for a world.
enum class launch_on : std::uint8_t {
  own_thread,  ///< one thread of the runtime's for each device
  /// The reactor's thread calls, for an engine that must stay the only issuer. A call
  /// to CUDA may then delay all its worlds while another thread holds one of the
  /// driver's locks.
  reactor,
};

/// Says how the reactor learns that an operation on the device is done.
enum class completion_by : std::uint8_t {
  words,   ///< the stream writes a number to host memory; events where it cannot
  events,  ///< a thread of the device's asks the oldest operation's event
};

/// Says how a communicator is made. Both ways run on a helper thread, with a deadline.
enum class creation_by : std::uint8_t {
  split,   ///< a non-blocking one, which can be given up, is split into the one for data
  direct,  ///< at once; one that is stuck occupies its thread until NCCL lets it go
};

/// Holds what a world of backend `nccl` needs to know beyond its members. Trivially
/// destructible.
struct device_options {
  /// Multiprocessors that its operations may occupy; they occupy the power of two that is
  /// not more, which is what NCCL counts in. The sum of these over a runtime's worlds on
  /// one device is at most what the device has, so that all of them can run at once.
  int most_multiprocessors = 4;
  launch_on launch = launch_on::own_thread;
  completion_by completion = completion_by::words;
  creation_by creation = creation_by::split;
  /// Operations that are handed to the stream and not done; more of them wait.
  int most_outstanding = 32;
  /// How long making the communicator may take.
  duration create = std::chrono::seconds(60);
  /// A call of NCCL's that blocks for longer has its communicator given up. Healthy calls
  /// wait for locks of the driver's, which the application's cudaMalloc, its loading of
  /// modules and other processes on the device hold, for seconds where it is bad. The
  /// first call of each kind, and of each power of two of bytes, has `create`: NCCL
  /// connects the peers in it, for the algorithm that it chooses by both.
  duration blocked_call = std::chrono::seconds(10);
  /// How long after a break the stream may take to drain; then buffers are lost.
  duration quiesce = std::chrono::seconds(5);
  /// How long freeing the communicator may take before it counts as stuck.
  duration release = std::chrono::seconds(10);

  /// An existing communicator and stream to use instead of making them, at every member
  /// or at none. They are of the same members in the same ranks, and quiet. They must
  /// live, and the stream not be cudaStreamPerThread, until the world is drained.
  ncclComm* communicator = nullptr;
  CUstream_st* stream = nullptr;
  /// Whether the world may revoke, abort and destroy it. If not, `on_break` is called on
  /// the world's reactor when the world breaks, to quiesce it; the stream is waited for.
  /// A call of ours may be inside NCCL then: revoke it, and free it after `drained()`.
  bool owns_communicator = false;
  /// See `owns_communicator`.
  void (*on_break)(ncclComm* communicator, void* context) = nullptr;
  void* on_break_context = nullptr;
};

}  // namespace manyworlds::inline v0
