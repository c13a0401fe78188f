// Runtime roots: the tasks of a runtime that nobody awaits, and their common end.
#pragma once

#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "manyworlds/world/runtime.hpp"

namespace manyworlds::inline v0 {

class runtime::roots final {
 public:
  explicit roots(reactor& home) noexcept
      : home_(home), cancel_(*this), drain_timer_(*this) {}

  /// From any thread.
  void add(const std::shared_ptr<started_base>& root);
  [[nodiscard]] bool empty() const;
  /// From any thread. A later call with less patience counts.
  void cancel_after(duration drain);

 private:
  struct cancelling final : work {
    explicit cancelling(roots& r) noexcept
        : work([](work& w) noexcept {
            auto& self = static_cast<cancelling&>(w);
            self.owner.begin_cancelling();
          }),
          owner(r) {}
    roots& owner;
    bool queued = false;
  };
  struct drain_timer final : timer {
    explicit drain_timer(roots& r) noexcept
        : timer(
              [](timer& t) noexcept { static_cast<drain_timer&>(t).owner.cancel_all(); }),
          owner(r) {}
    roots& owner;
  };

  void begin_cancelling() noexcept;
  void cancel_all() noexcept;
  void remove(const started_base* root);

  reactor& home_;
  mutable std::mutex mutex_;
  std::vector<std::shared_ptr<started_base>> running_;
  /// When all are cancelled, once that was asked for.
  std::optional<time_point> deadline_;
  cancelling cancel_;
  drain_timer drain_timer_;
};

}  // namespace manyworlds::inline v0
