// Environment: gives a runtime its engines, its randomness and its name. It is injected,
// so that the whole stack also runs under a simulated clock and network.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "manyworlds/io/engine_kind.hpp"
#include "manyworlds/process_identity.hpp"

namespace manyworlds::inline v0 {

namespace detail {
class reactor;
struct engine_choice;
namespace shm {
class host_kernel;
}
}  // namespace detail

class environment {
 public:
  environment() = default;
  environment(const environment&) = delete;
  environment& operator=(const environment&) = delete;
  virtual ~environment() = default;

  [[nodiscard]] virtual detail::engine_choice make_engine(engine_kind kind) = 0;
  virtual void fill_random(std::span<std::byte> bytes) = 0;
  [[nodiscard]] virtual process_identity identity() const = 0;

  /// True: a runtime starts threads for its reactors. False: other code (a simulation)
  /// turns every reactor that is attached, on one thread.
  [[nodiscard]] virtual bool starts_threads() const noexcept = 0;
  /// Returns what stands for the kernel where processes share memory. Null with threads
  /// means the kernel itself; null without threads means that they share none.
  [[nodiscard]] virtual detail::shm::host_kernel* host() noexcept { return nullptr; }
  virtual void attach(detail::reactor& r) = 0;
  virtual void detach(detail::reactor& r) noexcept = 0;
};

}  // namespace manyworlds::inline v0
