// Core: the state that the parts of one host backend share.
#pragma once

#include <cstddef>
#include <cstdint>

#include "backend/backend.hpp"
#include "host/host_options.hpp"
#include "host/lane_matcher.hpp"
#include "io/reactor.hpp"
#include "manyworlds/detail/assertion.hpp"

namespace manyworlds::inline v0::detail {
class host_backend;
}

namespace manyworlds::inline v0::detail::host {

/// Shares the backend's state with its channels and its collectives.
struct core {
  core(host_backend& backend, reactor& r, backend_listener& events,
       const host_backend_options& options, rank_t self, rank_t size,
       rank_t on_this_host) noexcept
      : backend(backend),
        home(r),
        events(events),
        options(options),
        self(self),
        size(size),
        has_cpu_for_each(on_this_host <=
                         (options.cpus > 0 ? options.cpus : cpus_online())) {
    MW_ASSERT(self >= 0 && self < size, "this process is a member");
    MW_ASSERT(on_this_host > 0 && on_this_host <= size, "it lives on its host");
  }
  /// Returns the CPUs of this machine. It is asked once: the kernel takes a while.
  [[nodiscard]] static rank_t cpus_online() noexcept;

  /// What the parts ask of the whole: timers, other channels, its collectives.
  host_backend& backend;
  reactor& home;
  backend_listener& events;
  const host_backend_options& options;
  const rank_t self;
  const rank_t size;
  /// Each member that lives on this host may wait on a CPU of its own. Their number may
  /// change, and all that a world agrees on by it must be told the same.
  const bool has_cpu_for_each;
  /// Limits what may be unreceived of one peer, over all the user's lanes.
  std::size_t peer_window = 0;
  /// The library's reserved lanes have the numbers from `lane::reserved
  /// 1` on.
  static constexpr std::uint64_t own_lanes = 2;
  static constexpr std::uint64_t collective_lane = lane::reserved | 2;
  /// Each reserved lane has a separate window: the library's messages do not wait
  /// behind what users have not received, nor the reverse.
  [[nodiscard]] static constexpr bool is_own(std::uint64_t lane_number) noexcept {
    return (lane_number & lane::reserved) != 0;
  }
  lane_matcher* matcher = nullptr;
  transfer_counters counters;
  /// `quiesce` was called: nothing is sent, received, ended or reported afterwards.
  bool stopping = false;
  /// A send that waits for the shared window was logged.
  bool has_logged_window = false;
};

}  // namespace manyworlds::inline v0::detail::host
