// Operation history: the last 64 operations that ended, for `dump()`, and the mutex that
// guards what is pending.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "io/biased_mutex.hpp"
#include "manyworlds/detail/operation.hpp"
#include "manyworlds/inline_text.hpp"
#include "manyworlds/source_position.hpp"

namespace manyworlds::inline v0::detail {

/// An operation as a dump shows it.
struct ended_operation {
  world_name world;
  std::uint64_t epoch = 0;
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
  mutable biased_mutex mutex_;
  std::array<ended_operation, remembered> recent_{};
  std::uint64_t next_ = 0;
};

}  // namespace manyworlds::inline v0::detail
