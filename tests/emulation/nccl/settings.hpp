// What the environment asks of the emulated NCCL; read once, at the first call.
#pragma once

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
  /// How long the first use of an algorithm connects, within its call.
  int connect_ms;
  int multiprocessors;
  bool shared_devices;
  std::uint64_t host_hash;

  /// The largest message that is sent without its receiver's consent.
  static constexpr std::size_t eager_limit = 64 * 1024;
};

const settings& chosen();

/// The version this library was built to be.
#ifdef EMULATED_NCCL_NEWER
inline constexpr int built_version = 22907;
#else
inline constexpr int built_version = 22809;
#endif

}  // namespace nccl_emulation
