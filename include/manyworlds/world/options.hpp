// World options: the name, the rank, the size and the time limits of a world.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>

#include "manyworlds/address.hpp"
#include "manyworlds/inline_text.hpp"
#include "manyworlds/nccl/device_options.hpp"
#include "manyworlds/time.hpp"

namespace manyworlds::inline v0 {

/// What moves a world's data.
enum class backend_kind : std::uint8_t {
  host,  ///< host memory, over shared memory and tcp
  nccl,  ///< device memory over NCCL, and host memory over the same links
};

[[nodiscard]] constexpr std::string_view name_of(backend_kind b) noexcept {
  return b == backend_kind::host ? "host" : "nccl";
}

/// Describes a world to form. All members give the same name and size, each its own
/// rank. It is trivially destructible, so that it can be written in an awaited
/// expression.
struct world_options {
  world_name name = {};
  rank_t rank = 0;
  rank_t size = 0;

  backend_kind backend = backend_kind::host;  ///< the same for all members
  int device = -1;  ///< the CUDA device of this member, if the backend has one
  device_options on_device = {};

  /// Forming fails after this time, all retries included.
  duration form = std::chrono::seconds(60);
  /// `leave()` waits at most this long for what was sent to be taken.
  duration drain = std::chrono::seconds(5);
  /// A peer that is silent for this long is suspect. The world stays up, unless another
  /// process joins with that rank and the suspect does not answer it: then it breaks
  /// with `replaced`. A `dispatcher` asks other workers what it has asked a suspect.
  duration suspect_after = std::chrono::seconds(1);
  /// A peer that is silent for this long breaks the world.
  duration broken_after = std::chrono::seconds(5);
  /// A begun transfer that moves no byte for this long breaks the world.
  duration stall = std::chrono::seconds(10);
  /// The log names the ranks that have not entered a collective after this time.
  duration collective_log = std::chrono::seconds(5);
  /// A collective that not all members have entered after this time breaks the world.
  duration collective_break = std::chrono::seconds(60);
};

namespace detail {

/// Returns what is wrong with the options, naming it; empty if nothing is.
[[nodiscard]] std::string validate(const world_options& options);

}  // namespace detail

}  // namespace manyworlds::inline v0
