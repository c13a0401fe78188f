// The meeting point of a communicator's members before they have connections.
#pragma once

#include "sockets.hpp"

#include <nccl.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace nccl_emulation {

/// What a member tells all others when it checks in. Goes over a socket as it stands.
struct member_card {
  int rank = -1;
  int color = 0;
  int key = 0;
  int device = -1;
  int capability = 0;
  std::uint64_t host = 0;
  std::uint64_t process = 0;
  char bus[32] = {};
  char listener[64] = {};
  char invitation[64] = {};
};

/// Opens a root of its own thread in this process, as ncclGetUniqueId does. It ends when
/// all members have come, or when all of those that came have gone again; it dies with
/// the process.
std::optional<std::string> open_root();

ncclUniqueId id_of_root(const std::string& name);
std::optional<std::string> root_of_id(const ncclUniqueId& id);

/// Gives `own` as number `index` of `count` to the root called `name` and takes
/// those of all. Without the root it waits for an abort. Empty when interrupted.
std::optional<std::vector<member_card>> check_in(const std::string& name, int index,
                                                 int count, const member_card& own,
                                                 interrupts cut);

/// The same where no root exists: number 0 of `count` serves as one. The name is derived
/// by all members from what they share.
std::optional<std::vector<member_card>> meet(const std::string& name, int index,
                                             int count, const member_card& own,
                                             interrupts cut);

}  // namespace nccl_emulation
