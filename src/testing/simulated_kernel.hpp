// Simulated kernel: what the processes of one simulated host share by their kernel.
#pragma once

#include <string_view>
#include <utility>

#include "io/engine.hpp"
#include "manyworlds/testing/simulated_process.hpp"

namespace manyworlds::inline v0::detail {

/// A part of a process that other processes of its host know of, as they would by the
/// kernel. Thread: the simulation's, and not in a turn of the process.
class simulated_resident {
 public:
  simulated_resident(const simulated_resident&) = delete;
  simulated_resident& operator=(const simulated_resident&) = delete;

  /// Returns the name by which the processes of its host find it; empty if they do not.
  [[nodiscard]] virtual std::string_view name() const noexcept { return {}; }
  /// Called when its process is killed. Does only what the kernel does for the dead.
  virtual void killed() noexcept {}
  /// Called a moment after a process of its host was killed.
  virtual void process_killed() noexcept {}

 protected:
  simulated_resident() = default;
  ~simulated_resident() = default;
};

class simulated_kernel {
 public:
  static void add_resident(simulated_process& p, simulated_resident& r) {
    p.residents_.push_back(&r);
  }
  static void remove_resident(simulated_process& p, simulated_resident& r) noexcept {
    std::erase(p.residents_, &r);
  }
  /// Finds a resident of a living process of the same host; null if there is none.
  [[nodiscard]] static simulated_resident* find(const simulated_process& p,
                                                std::string_view name) noexcept;
  /// Makes a socket pair; the second end belongs to `other`. Both are none if that is
  /// not possible.
  [[nodiscard]] static std::pair<socket_handle, socket_handle> make_pair(
      simulated_process& p, simulated_process& other);
  [[nodiscard]] static network& sockets(simulated_process& p) noexcept;
};

}  // namespace manyworlds::inline v0::detail
