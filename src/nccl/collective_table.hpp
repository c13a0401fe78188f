// Collective table: which members have entered which collective of a GPU world; rank 0
// keeps it.
#pragma once

#include <cstdint>
#include <deque>
#include <string>
#include <vector>

#include "manyworlds/time.hpp"
#include "nccl/order_message.hpp"

namespace manyworlds::inline v0::detail::nccl {

/// Members enter collectives in the order of their numbers, so those that are complete
/// are the first ones. It has no input or output, and only says what follows.
class collective_table {
 public:
  explicit collective_table(rank_t size) : entered_(static_cast<std::size_t>(size)) {}

  enum class outcome : std::uint8_t { waits, complete, disagrees, out_of_turn, lost };
  struct verdict {
    outcome what = outcome::waits;
    /// For `disagrees`: the member that entered with other terms first, and what is to
    /// be said. For `lost`: the member that has left.
    rank_t other = no_rank;
    std::string detail;
  };
  verdict enter(rank_t who, std::uint64_t number, const collective_terms& terms,
                time_point now);

  /// Notes that the member will enter no more, and may be gone before what it entered
  /// is launched. Returns the numbers that are lost with it; all later ones are lost
  /// too.
  [[nodiscard]] std::vector<std::uint64_t> leave(rank_t who);

  struct overdue {
    std::uint64_t number = 0;
    collective_terms terms;
    duration since{0};
    std::vector<rank_t> absent;
    bool is_logged = false;
  };
  /// Returns the oldest that is not complete, if it is older than `limit`.
  [[nodiscard]] const overdue* oldest(time_point now, duration limit);
  void set_logged() noexcept { open_.front().logged = true; }

 private:
  struct entry {
    collective_terms terms;
    rank_t first = no_rank;
    std::size_t count = 0;
    time_point since{};
    bool logged = false;
  };

  /// A member may be ahead of the others by at most this number.
  static constexpr std::size_t most_open = 16'384;

  std::deque<entry> open_;
  std::uint64_t first_number_ = 1;
  std::vector<std::uint64_t> entered_;  ///< by rank: the last number
  rank_t departed_ = no_rank;
  overdue oldest_;
};

}  // namespace manyworlds::inline v0::detail::nccl
