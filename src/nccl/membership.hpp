// Membership: what all parts of a GPU world's backend know.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "backend/backend.hpp"
#include "host/host_backend.hpp"
#include "io/reactor.hpp"
#include "manyworlds/nccl/device_options.hpp"
#include "nccl/device.hpp"
#include "nccl/ranges.hpp"

namespace manyworlds::inline v0::detail::nccl {

struct nccl_backend_options {
  world_name name;
  std::uint64_t epoch = 0;
  host_backend_options host;
  device_options device;
};

/// Why operations end where `membership::is_closed_early`.
inline constexpr const char* closed_early =
    "a member has left before the device was ready";

/// Why operations end once rank 0 has left.
inline constexpr const char* leader_gone =
    "rank 0 has left: without it no member decides the order of operations on devices";

/// Knows one member of one world: which one it is, on which GPU, which members have
/// left, and how the world breaks.
///
/// Thread: the world's reactor. Lifetime: the backend's, longer than each of its parts.
class membership {
 public:
  membership(reactor& reactor, backend_listener& world, nccl_backend_options how,
             rank_t rank, std::size_t members, std::shared_ptr<nccl::device> on)
      : home(reactor),
        events(world),
        options(std::move(how)),
        self(rank),
        size(static_cast<rank_t>(members)),
        device(std::move(on)),
        names(options.name, options.epoch),
        left_(members) {}
  membership(const membership&) = delete;
  membership& operator=(const membership&) = delete;

  /// Returns whether this is rank 0, which decides what is launched when.
  [[nodiscard]] bool leads() const noexcept { return self == 0; }
  /// Returns whether the reactor launches, and not a thread of the device's.
  [[nodiscard]] bool launches_on_reactor() const noexcept {
    return options.device.launch == launch_on::reactor;
  }

  void note_left(rank_t rank) { left_[static_cast<std::size_t>(rank)] = true; }
  [[nodiscard]] bool has_left(rank_t rank) const noexcept {
    return left_[static_cast<std::size_t>(rank)];
  }
  [[nodiscard]] bool has_leader_left() const noexcept { return has_left(0); }
  [[nodiscard]] bool has_any_left() const noexcept {
    return std::find(left_.begin(), left_.end(), true) != left_.end();
  }

  [[nodiscard]] bool is_closed_early() const noexcept { return never_opens && !is_open; }

  void break_world(rank_t rank, enum cause why, std::string detail) noexcept {
    if (!is_over) events.must_break(rank, why, std::move(detail));
  }
  /// Runs a step. Nothing unwinds through callbacks: a step for which there is no
  /// memory breaks the world.
  template <class Step>
  void guarded(Step&& step) noexcept {
    try {
      step();
    } catch (const std::exception& e) {
      break_world(self, cause::out_of_resources, e.what());
    }
  }

  reactor& home;
  backend_listener& events;
  const nccl_backend_options options;
  const rank_t self;
  const rank_t size;
  const std::shared_ptr<nccl::device> device;
  range_names names;
  /// The communicator is ready.
  bool is_open = false;
  /// A member left before the device was ready here. It may be made all the same.
  bool never_opens = false;
  /// The world has broken, or this member has left it: no operation begins or ends.
  bool is_over = false;

 private:
  std::vector<bool> left_;
};

}  // namespace manyworlds::inline v0::detail::nccl
