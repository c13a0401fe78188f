// Device part: what an operation on device memory says beyond `operation`.
#pragma once

#include <cstdint>
#include <exception>

#include "manyworlds/address.hpp"
#include "manyworlds/memory/gather_list.hpp"
#include "manyworlds/memory/reduction.hpp"
#include "manyworlds/nccl/ticket.hpp"

struct ncclComm;

namespace manyworlds::inline v0::detail {

/// Several unmatched operations that are launched as one NCCL group.
class launch_group {
 public:
  explicit launch_group(std::size_t members) noexcept : waits_for(members) {}
  std::size_t waits_for;  ///< members that have not come to their launch yet
  bool failed = false;    ///< a member could not be started: none is launched
  void* first = nullptr;  ///< the backend's list of the members that have come
};

/// Lives in the awaiter of the operation. Thread: the world's reactor; `call` runs
/// where operations are launched.
struct device_part {
  // What to do.
  const_device_view_list source;
  device_view_list target;
  reduction by = sum;
  rank_t root = no_rank;
  /// True to launch it in the order of its start, without matching it with the peers.
  bool unmatched = false;
  bool enqueued = false;  ///< true: it ends when the stream has it, before it is done
  launch_group* group = nullptr;
  /// Called with `context` where operations are launched, by a `native` operation.
  void (*call)(void* context, ncclComm* communicator, CUstream_st* stream) = nullptr;
  void* context = nullptr;

  // The results.
  ticket at;  ///< the ticket of this operation; `settle` waits for it
  device_costs costs;
  std::exception_ptr thrown;

  void* state = nullptr;  ///< for the backend
};

}  // namespace manyworlds::inline v0::detail
