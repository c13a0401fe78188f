// Device part: what an operation on device memory says beyond `operation`.
#pragma once

#include <cstdint>
#include <exception>

#include "manyworlds/address.hpp"
#include "manyworlds/backend/device_ticket.hpp"
#include "manyworlds/memory/device_list.hpp"
#include "manyworlds/memory/reduction.hpp"

struct ncclComm;

namespace manyworlds::inline v0 {

/// Several unmatched operations that are launched as one NCCL group.
class launch_group {
 public:
  explicit launch_group(std::size_t members) noexcept : waits_for(members) {}
  /// Members that have not come to their launch yet.
  std::size_t waits_for;
  /// One of them could not be started: none is launched.
  bool failed = false;
  /// The backend's list of those that have.
  void* first = nullptr;
};

/// In the operation's awaiter. On the world's reactor, but for what `call` does.
struct device_part {
  // What to do.
  const_device_view_list source;
  device_view_list target;
  reduction by = sum;
  rank_t root = no_rank;
  /// Launched in the order of its start, without asking whether the peers are there.
  bool unmatched = false;
  /// It ends when the stream has it, not when it is done.
  bool enqueued = false;
  launch_group* group = nullptr;
  /// Of `native`: called with `context` where operations are launched.
  void (*call)(void* context, ncclComm* communicator, CUstream_st* stream) = nullptr;
  void* context = nullptr;

  // What came of it; of `settle`: the ticket to wait for.
  ticket at;
  device_costs costs;
  std::exception_ptr thrown;

  /// The backend's own.
  void* state = nullptr;
};

}  // namespace manyworlds::inline v0
