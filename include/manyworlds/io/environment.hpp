// Environment: gives a runtime its engines, its randomness and its name. It is injected,
// so that the whole stack also runs under a simulated clock and network.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "manyworlds/detail/config.hpp"
#include "manyworlds/failure.hpp"

namespace manyworlds::inline v0 {

/// `automatic` takes io_uring, or epoll where io_uring is refused.
enum class engine_kind : unsigned char { automatic, io_uring, epoll };

namespace detail {
class process_host;
class reactor;
struct engine_choice;
namespace shm {
class host_kernel;
}
}  // namespace detail

/// Stands for the machine. A runtime is given one by a simulation, or takes the real one.
class environment {
 public:
  environment() = default;
  environment(const environment&) = delete;
  environment& operator=(const environment&) = delete;
  virtual ~environment() = default;

  /// Makes what a reactor waits on.
  [[nodiscard]] virtual detail::engine_choice make_engine(engine_kind kind) = 0;
  /// Fills memory with random bytes.
  virtual void fill_random(std::span<std::byte> bytes) = 0;
  [[nodiscard]] virtual process_identity identity() const = 0;

  /// True: a runtime starts threads for its reactors. False: other code (a simulation)
  /// turns every reactor that is attached, on one thread.
  [[nodiscard]] virtual bool starts_threads() const noexcept = 0;
  /// Returns what stands for the kernel where processes share memory. Null with threads
  /// means the kernel itself; null without threads means that they share none.
  [[nodiscard]] virtual detail::shm::host_kernel* host() noexcept { return nullptr; }
  /// Returns what starts programs for a runtime; null where none can be started.
  [[nodiscard]] virtual detail::process_host* processes() noexcept { return nullptr; }
  /// Makes this environment turn a reactor, where it starts no threads.
  virtual void attach(detail::reactor& r) = 0;
  /// Ends that.
  virtual void detach(detail::reactor& r) noexcept = 0;
};

}  // namespace manyworlds::inline v0
