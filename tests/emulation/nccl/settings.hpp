// What the environment asks of the emulated NCCL; read once, at the first call.
#pragma once

#include <nccl.h>

#include <cstddef>
#include <cstdint>
#include <string>

namespace nccl_emulation {

enum class death_mode { nvlink, socket };
enum class ending_mode { quick, slow, stuck, peers };

struct settings {
  int version;
  death_mode death;
  int error_delay_ms;
  bool eager;
  ending_mode abort;
  ending_mode revoke;
  ending_mode destroy;
  bool poison;
  int create_ms;
  /// Operations of a communicator that wait for their turn before a call of it blocks.
  int most_waiting;
  int async_ms;
  /// How long the first use of a connection takes, within its call.
  int connect_ms;
  /// Connecting ends when all members of the connection are in it, and needs the device.
  bool connecting_meets;
  /// Collectives connect at their first use, and not with their communicator.
  bool connects_at_use;
  /// Communicators allocate, and that waits for their device.
  bool syncs_implicitly;
  int multiprocessors;
  bool shared_devices;
  std::uint64_t host_hash;

  /// The largest message that is sent without its receiver's consent.
  static constexpr std::size_t eager_limit = 64 * 1024;
};

const settings& chosen();

/// The version this library was built to be, and what that knows of an ncclConfig_t.
#if defined(EMULATED_NCCL_OLDER)
inline constexpr int built_version = 21803;
inline constexpr std::size_t known_config = offsetof(ncclConfig_t, trafficClass);
#else
inline constexpr std::size_t known_config = sizeof(ncclConfig_t);
#ifdef EMULATED_NCCL_NEWER
inline constexpr int built_version = 22907;
#else
inline constexpr int built_version = 22809;
#endif
#endif

}  // namespace nccl_emulation
