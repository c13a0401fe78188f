// How a communicator comes to be: its configuration, its members, its connections.
#pragma once

#include "communicator.hpp"

#include <functional>
#include <optional>

namespace nccl_emulation {

/// A communicator with the config's properties. Null with a complaint where NCCL refuses
/// it.
shared_communicator configured(const ncclConfig_t* config, int device,
                               ncclResult_t& refusal);

/// As `parent` is configured, where the caller gave no config.
shared_communicator configured_like(const communicator& parent);

/// Where the other members connect to.
struct doorway {
  descriptor listener;
  std::string name;
  static doorway open();
  member_card on(member_card card) const;
};

/// Makes the connections to `members`, of whom this is number `c.rank`. Blocks while any
/// of them has not come, or is gone.
ncclResult_t form(communicator& c, const doorway& door, std::vector<member_card> members,
                  interrupts cut);

/// A name all members derive alike from their communicator's.
std::string derive(const communicator& c, const std::string& purpose);

/// What ncclCommInitRank does: checks in with all `roots` and forms.
ncclResult_t join(const shared_communicator& c, const std::vector<std::string>& roots,
                  interrupts cut);

}  // namespace nccl_emulation
