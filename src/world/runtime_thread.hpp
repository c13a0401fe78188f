// Runtime thread: a thread that turns one of a runtime's reactors.
#pragma once

#include <atomic>
#include <chrono>
#include <memory>
#include <thread>
#include <utility>

#include "io/forked_thread.hpp"
#include "io/signals_blocked.hpp"
#include "manyworlds/world/runtime.hpp"
#include "world/runtime_core.hpp"

namespace manyworlds::inline v0 {

using namespace detail;

/// Shared by the runtime and the thread, so that a thread that does not return from
/// user code can be left behind.
struct runtime::own_thread {
  explicit own_thread(std::shared_ptr<runtime_core> c) noexcept : core(std::move(c)) {}

  template <class Main>
  [[nodiscard]] static std::shared_ptr<own_thread> launch(
      std::shared_ptr<runtime_core> core, Main main) {
    auto self = std::make_shared<own_thread>(std::move(core));
    const signals_blocked while_starting;
    self->thread = std::thread([self, main] {
      main(*self);
      self->has_ended.store(true, std::memory_order_release);
    });
    return self;
  }

  /// Asks it to end between two turns of `r`, and joins it. False if it has not ended
  /// within `patience`.
  [[nodiscard]] bool end(reactor& r, duration patience) noexcept {
    must_end.store(true);
    r.wake();
    const auto by = std::chrono::steady_clock::now() + patience;
    while (!has_ended.load(std::memory_order_acquire)) {
      if (std::chrono::steady_clock::now() >= by) return false;
      std::this_thread::sleep_for(std::chrono::microseconds(100));
    }
    thread.join();
    core = nullptr;
    return true;
  }
  void forget() noexcept { forget_forked_thread(thread); }
  /// It goes on, or is the calling thread.
  void leave_behind() noexcept {
    if (thread.joinable()) thread.detach();
  }

  std::shared_ptr<runtime_core> core;
  std::atomic<bool> must_end{false};
  std::atomic<bool> has_ended{false};
  std::thread thread;
};

}  // namespace manyworlds::inline v0
