// Operation history: the last 64 operations that ended, for `dump()`, and the mutex that
// guards what is pending.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <utility>
#include <vector>

#include "io/biased_mutex.hpp"
#include "manyworlds/detail/operation.hpp"
#include "manyworlds/inline_text.hpp"
#include "manyworlds/source_position.hpp"

namespace manyworlds::inline v0::detail {

/// An operation as a dump shows it.
struct ended_operation {
  std::uint64_t world = 0;  ///< the world's instance, which `operation_history` names
  operation_kind kind = operation_kind::none;
  rank_t peer = no_rank;
  std::uint64_t lane = 0;
  std::uint64_t bytes = 0;
  bool begun = false;
  time_point started{};
  time_point ended{};
  enum cause failed_with = cause::none;
  const char* file = "";
  unsigned line = 0;
};

/// Keeps the last operations. The mutex also guards the worlds' lists of pending
/// operations: a dump reads them from any thread while the reactor, which owns the
/// mutex, is stuck in user code.
class operation_history {
 public:
  static constexpr std::size_t remembered = 64;

  [[nodiscard]] biased_mutex& mutex() const noexcept { return mutex_; }

  /// Notes the name of a world before its operations end here, so that none of them
  /// copies it. Thread: the reactor.
  void name_world(std::uint64_t instance, const world_name& name, std::uint64_t epoch) {
    const biased_mutex::owner_lock lock(mutex_);
    // The names of worlds that are over go when their operations have.
    std::erase_if(worlds_, [this](const named_world& w) {
      return w.is_over &&
             std::none_of(recent_.begin(), recent_.end(), [&w](const ended_operation& o) {
               return o.world == w.instance;
             });
    });
    worlds_.push_back({instance, name, epoch, false});
  }
  /// Notes that no operation of that world follows. Thread: the reactor.
  void note_over(std::uint64_t instance) noexcept {
    const biased_mutex::owner_lock lock(mutex_);
    for (named_world& w : worlds_) w.is_over = w.is_over || w.instance == instance;
  }
  /// Returns what a world of `recent` is called, and its epoch. Precondition: the mutex
  /// is held.
  [[nodiscard]] std::pair<world_name, std::uint64_t> name_of_world(
      std::uint64_t instance) const noexcept {
    for (const named_world& w : worlds_) {
      if (w.instance == instance) return {w.name, w.epoch};
    }
    return {};
  }

  /// Returns the place of the latest, to overwrite. Precondition: the mutex is held.
  [[nodiscard]] ended_operation& next() noexcept { return recent_[next_++ % remembered]; }
  /// Returns them, oldest first. Precondition: the mutex is held.
  [[nodiscard]] std::vector<ended_operation> recent() const {
    std::vector<ended_operation> ended;
    const std::uint64_t first = next_ > remembered ? next_ - remembered : 0;
    for (std::uint64_t i = first; i < next_; ++i)
      ended.push_back(recent_[i % remembered]);
    return ended;
  }

 private:
  struct named_world {
    std::uint64_t instance;
    world_name name;
    std::uint64_t epoch;
    bool is_over;
  };

  mutable biased_mutex mutex_;
  std::vector<named_world> worlds_;
  std::array<ended_operation, remembered> recent_{};
  std::uint64_t next_ = 0;
};

}  // namespace manyworlds::inline v0::detail
