// World options: which world, which rank, and how patient it is.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>

#include "manyworlds/address.hpp"
#include "manyworlds/coro/timer_queue.hpp"
#include "manyworlds/inline_text.hpp"
#include "manyworlds/nccl/device_options.hpp"

namespace manyworlds::inline v0 {

enum class backend_kind : std::uint8_t {
  host,  ///< host memory, over shared memory and tcp
  nccl,  ///< device memory over NCCL, and host memory over the same links
};

[[nodiscard]] constexpr std::string_view name_of(backend_kind b) noexcept {
  return b == backend_kind::host ? "host" : "nccl";
}

/// Describes a world to form. Trivially destructible, so that it can be written in an
/// awaited expression. All members give the same name and size, each its own rank.
struct world_options {
  world_name name = {};
  rank_t rank = 0;
  rank_t size = 0;

  /// All members choose the same.
  backend_kind backend = backend_kind::host;
  /// The CUDA device of this member, if the backend has one.
  int device = -1;
  device_options on_device = {};

  /// How long forming may take, all retries included.
  duration form = std::chrono::seconds(60);
  /// How long `leave()` waits for what was sent to be taken.
  duration drain = std::chrono::seconds(5);
  /// A peer that is not heard of for this long is suspect: visible, nothing else.
  duration suspect_after = std::chrono::seconds(1);
  /// ... and for this long breaks the world.
  duration broken_after = std::chrono::seconds(5);
  /// A begun transfer that moves no byte for this long breaks the world.
  duration stall = std::chrono::seconds(10);
  /// A collective that not all members have entered names the absent ranks after this
  /// long ...
  duration collective_log = std::chrono::seconds(5);
  /// ... and breaks the world after this long.
  duration collective_break = std::chrono::seconds(60);
};

/// What is wrong with the options, naming it; empty if nothing.
[[nodiscard]] std::string objection_to(const world_options& options);

}  // namespace manyworlds::inline v0
