// Environment: gives a runtime its engines, its randomness and its name. It is injected,
// so that the whole stack also runs under a simulated clock and network.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "manyworlds/io/reactor.hpp"
#include "manyworlds/process_identity.hpp"

namespace manyworlds::inline v0 {

class simulated_process;

class environment {
 public:
  environment() = default;
  environment(const environment&) = delete;
  environment& operator=(const environment&) = delete;
  virtual ~environment() = default;

  [[nodiscard]] virtual engine_choice make_engine(engine_kind kind) = 0;
  virtual void fill_random(std::span<std::byte> bytes) = 0;
  [[nodiscard]] virtual process_identity identity() const = 0;

  /// True: a runtime starts threads for its reactors. False: other code (a simulation)
  /// turns every reactor that is attached, on one thread.
  [[nodiscard]] virtual bool starts_threads() const noexcept = 0;
  /// Returns the object that stands for the kernel where processes share memory. Null
  /// with threads means the kernel itself. Null without threads means that they share
  /// none.
  [[nodiscard]] virtual simulated_process* simulated_kernel() noexcept { return nullptr; }
  virtual void attach(reactor& r) = 0;
  virtual void detach(reactor& r) noexcept = 0;
};

/// The machine we run on: io_uring or epoll, getrandom, getpid, real threads.
class system_environment final : public environment {
 public:
  [[nodiscard]] engine_choice make_engine(engine_kind kind) override;
  void fill_random(std::span<std::byte> bytes) override;
  [[nodiscard]] process_identity identity() const override;
  [[nodiscard]] bool starts_threads() const noexcept override { return true; }
  void attach(reactor&) override {}
  void detach(reactor&) noexcept override {}
};

}  // namespace manyworlds::inline v0
