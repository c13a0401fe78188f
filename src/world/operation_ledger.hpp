// Operation ledger: the last 64 operations that ended, for `dump()`, and the mutex that
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
struct operation_record {
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
class operation_ledger {
 public:
  static constexpr std::size_t remembered = 64;

  [[nodiscard]] biased_mutex& mutex() const noexcept { return mutex_; }

  /// Returns the record to overwrite with the latest. Precondition: the mutex is held.
  [[nodiscard]] operation_record& next() noexcept {
    return recent_[next_++ % remembered];
  }
  /// Returns the records, oldest first. Precondition: the mutex is held.
  [[nodiscard]] std::vector<operation_record> recent() const {
    std::vector<operation_record> records;
    const std::uint64_t first = next_ > remembered ? next_ - remembered : 0;
    for (std::uint64_t i = first; i < next_; ++i)
      records.push_back(recent_[i % remembered]);
    return records;
  }

 private:
  mutable biased_mutex mutex_;
  std::array<operation_record, remembered> recent_{};
  std::uint64_t next_ = 0;
};

}  // namespace manyworlds::inline v0::detail
