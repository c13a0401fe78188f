// Communicators made from a parent, over the parent's own bootstrap.
#pragma once

#include "communicator.hpp"
#include "formation.hpp"

#include <optional>
#include <string>
#include <vector>

namespace nccl_emulation {

/// Which members of the parent take part in making a child, and what this one wants.
struct child_request {
  std::string purpose;
  /// Ranks of the parent, ascending.
  std::vector<int> participants;
  int color = 0;
  int key = 0;
};

/// Blocks until all participants have asked for the same. Those of this rank's color
/// become the child's members, in the order of key and rank. `child` is null where this
/// rank wants none.
ncclResult_t make_child(const shared_communicator& parent,
                        const shared_communicator& child, const child_request& request,
                        interrupts cut);

std::vector<int> all_ranks(const communicator& c);

}  // namespace nccl_emulation
