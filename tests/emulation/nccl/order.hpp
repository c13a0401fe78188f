// The order of one communicator's operations over all streams.
#pragma once

#include "abort_flag.hpp"

#include <cstdint>
#include <set>

namespace nccl_emulation {

/// NCCL chains the operations of a communicator over its internal stream, so two of them
/// never overlap, whatever streams they were given to (2.28.9 src/enqueue.cc
/// ncclLaunchPrepare).
class operation_order {
 public:
  explicit operation_order(abort_flag& flag) : flag_(&flag) {}

  void use_flag(abort_flag& flag) { flag_ = &flag; }

  std::uint64_t take();
  /// Waits for its turn; false when the flag is raised.
  bool enter(std::uint64_t ticket);
  void leave(std::uint64_t ticket);
  /// Waits until fewer than that are left, or the flag is raised; the latter is false.
  bool wait_below(std::size_t count);
  /// Waits until none is left, or, where `cut` is given, until it is raised.
  bool wait_idle(const abort_flag* cut);

 private:
  abort_flag* flag_;
  std::uint64_t next_ = 0;
  std::set<std::uint64_t> waiting_;
};

}  // namespace nccl_emulation
