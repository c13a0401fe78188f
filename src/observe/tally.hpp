// Tally: counts of what happened to one world, written where it happens and read from
// any thread.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "manyworlds/detail/assertion.hpp"
#include "manyworlds/detail/observed.hpp"
#include "manyworlds/observe/history.hpp"

namespace manyworlds::inline v0::detail {

/// Counts of the serving layer of one runtime. Written on the runtime's reactor, read
/// from any thread.
struct serving_tally {
  /// Bodies of `accept`, `keep` and `connect` that ended by an exception of their own.
  observed<std::uint64_t> bodies_failed;
  /// Calls that were given to a second worker while the first was suspect.
  observed<std::uint64_t> calls_asked_twice;
  /// Those of them that the second worker answered first.
  observed<std::uint64_t> answered_by_another;
  /// Answers that were dropped: another worker had won, or the call was over.
  observed<std::uint64_t> late_answers;
  /// Calls that a worker gave back because it drains.
  observed<std::uint64_t> calls_given_back;
};

/// A snapshot of `serving_tally`.
struct serving_report {
  std::uint64_t bodies_failed = 0;
  std::uint64_t calls_asked_twice = 0;
  std::uint64_t answered_by_another = 0;
  std::uint64_t late_answers = 0;
  std::uint64_t calls_given_back = 0;
};

/// Counts what happened to one world. Errors and the forming are noted on the world's
/// reactor, suspicions on the service's.
class world_tally {
 public:
  void note_error(enum cause why) noexcept {
    MW_ASSERT(static_cast<std::size_t>(why) < causes, "each cause has a counter");
    ++errors_[static_cast<std::size_t>(why)];
  }
  void note_suspicion() noexcept { ++suspicions_; }
  void note_up(time_point when) noexcept { up_since_ = when.time_since_epoch().count(); }

  [[nodiscard]] world_history read(time_point now) const {
    world_history h;
    const duration::rep since = up_since_;
    if (since != 0) h.up_for = now.time_since_epoch() - duration(since);
    h.times_suspect = suspicions_;
    for (std::size_t i = 0; i < errors_.size(); ++i) {
      if (errors_[i] != 0) h.errors.push_back({static_cast<enum cause>(i), errors_[i]});
    }
    return h;
  }

 private:
  static constexpr std::size_t causes =
      static_cast<std::size_t>(cause::wrong_version) + 1;

  std::array<observed<std::uint64_t>, causes> errors_{};
  observed<std::uint64_t> suspicions_;
  observed<duration::rep> up_since_;
};

}  // namespace manyworlds::inline v0::detail
