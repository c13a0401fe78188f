// Context log: the changes of a context as rows that are chained by checksums.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "link/wire.hpp"
#include "manyworlds/detail/seeded_random.hpp"
#include "mpmd/context_store.hpp"

namespace manyworlds::inline v0::detail {

/// Folds numbers and texts into 64 bits. Each step is a bijection of the state, so that
/// one wrong word of eight bytes is found always, and anything else but once in 2^64. It
/// is against disks and not against attackers: it has no secret.
class context_checksum {
 public:
  explicit context_checksum(std::uint64_t start) noexcept : state_(start) {}

  context_checksum& number(std::uint64_t n) noexcept {
    state_ = seeded_random(state_ ^ n).next();
    return *this;
  }
  /// Adds the length, too.
  context_checksum& text(std::string_view bytes) noexcept;
  context_checksum& text(std::span<const std::byte> raw) noexcept {
    return text(std::string_view(reinterpret_cast<const char*>(raw.data()), raw.size()));
  }
  [[nodiscard]] std::uint64_t value() const noexcept { return state_; }

 private:
  std::uint64_t state_;
};

/// Stands in place of the predecessor's checksum where a log begins.
inline constexpr std::uint64_t context_chain_start = 0x6d7720636f6e7478;

/// One row: either changes, or a snapshot, which begins a log.
struct context_row {
  std::uint64_t sequence = 0;
  std::uint64_t term = 0;
  bytes body;
  std::uint64_t checksum = 0;  ///< of this row and of its predecessor's checksum
};

/// What stands beside the rows. Without it a log that has lost its last rows would look
/// like an older one that is whole.
struct context_head {
  std::uint64_t term = 0;
  std::uint64_t sequence = 0;
  std::uint64_t last = context_chain_start;  ///< the checksum of the last row

  [[nodiscard]] std::uint64_t checksum() const noexcept {
    return context_checksum(context_chain_start)
        .number(term)
        .number(sequence)
        .number(last)
        .value();
  }
};

/// Says which part of a context is not what was written.
class context_damage : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// The rows so far, and the values that they make. Thread: one at a time.
class context_log {
 public:
  /// Takes the next row as it was kept. Errors: context_damage naming the row.
  void play(const context_row& row);
  /// Errors: context_damage if the rows that were played do not end at the head.
  void expect_end(const context_head& head) const;

  /// Makes the next row, with these changes.
  [[nodiscard]] context_row append(std::uint64_t term,
                                   const std::vector<context_write>& changes);
  /// Makes the next row a snapshot with these changes: all before it is of no use.
  [[nodiscard]] context_row begin_anew(std::uint64_t term,
                                       const std::vector<context_write>& changes);

  [[nodiscard]] const context_values& values() const noexcept { return values_; }
  [[nodiscard]] std::uint64_t sequence() const noexcept { return sequence_; }
  [[nodiscard]] std::uint64_t last() const noexcept { return last_; }
  /// Returns whether the changes behind the snapshot have more than `least` bytes and
  /// more than the snapshot: then a new one costs no more than what was written since.
  [[nodiscard]] bool is_long(std::size_t least) const noexcept {
    return change_bytes_ > least && change_bytes_ > snapshot_bytes_;
  }

 private:
  [[nodiscard]] context_row next(std::uint64_t term, bytes body, bool is_snapshot);
  void apply(const std::vector<context_write>& changes);
  void count(const context_row& row, bool is_snapshot) noexcept;

  context_values values_;
  std::uint64_t sequence_ = 0;
  std::uint64_t term_ = 0;
  std::uint64_t last_ = context_chain_start;
  std::size_t change_bytes_ = 0;
  std::size_t snapshot_bytes_ = 0;
};

}  // namespace manyworlds::inline v0::detail
