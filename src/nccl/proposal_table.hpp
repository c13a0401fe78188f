// Proposal table: which operations of a GPU world wait for promises; rank 0 keeps it.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "manyworlds/time.hpp"
#include "nccl/order_message.hpp"

namespace manyworlds::inline v0::detail::nccl {

/// Names the members that an operation or a message concerns: all, or one or two.
struct members_concerned {
  rank_t one = no_rank;  ///< none: all
  rank_t other = no_rank;

  [[nodiscard]] bool has(rank_t who) const noexcept {
    return one == no_rank || one == who || other == who;
  }
  friend bool operator==(const members_concerned&, const members_concerned&) = default;
};

/// Describes an operation that is to get a place, with the message that launches it.
/// Those of the same members get theirs in their order.
struct placement {
  order_message launch;
  operation_kind kind = operation_kind::none;  ///< of a collective
  members_concerned members;                   ///< those that launch it
  time_point since{};                          ///< when it was proposed first
  int retractions = 0;
  rank_t silent = no_rank;  ///< the member for which it was retracted last
};

/// Knows the members that have answered and the latest promised time. It has no input
/// or output, and only says what follows.
class proposal_table {
 public:
  explicit proposal_table(rank_t size) noexcept : size_(size) {}

  struct proposal {
    std::uint64_t number = 0;
    placement what;
    std::vector<rank_t> silent;  ///< have not answered
    std::uint64_t latest = 0;
    time_point asked{};
  };

  /// Returns the number; numbers grow.
  std::uint64_t propose(placement what, time_point now);

  enum class outcome : std::uint8_t {
    waits,
    decided,
    late,   ///< the proposal is retracted: the answer is not heeded
    wrong,  ///< it was not proposed to this member, or is answered already
  };
  struct verdict {
    outcome what = outcome::waits;
    /// For `decided`: the operation and its place.
    std::optional<proposal> decided;
    /// For `decided` and `late`: how long the answers took.
    duration took{0};
  };
  [[nodiscard]] verdict hear(rank_t from, const promise_message& m, time_point now);

  /// Takes out those that have waited for answers at least as long as `patience`, and
  /// what stands behind such a one and concerns the same members, in the same order.
  [[nodiscard]] std::vector<proposal> take_overdue(time_point now, duration patience);
  [[nodiscard]] std::vector<proposal> take_all();
  /// Takes out those that the member would launch.
  [[nodiscard]] std::vector<proposal> take_of(rank_t who);

  [[nodiscard]] std::size_t size() const noexcept { return open_.size(); }
  [[nodiscard]] bool empty() const noexcept { return open_.empty(); }
  /// Returns when the first of them was asked for.
  [[nodiscard]] std::optional<time_point> oldest() const noexcept;
  [[nodiscard]] const std::map<std::uint64_t, proposal>& open() const noexcept {
    return open_;
  }

 private:
  struct retracted {
    std::vector<rank_t> silent;
    time_point asked{};
  };
  /// Answers to older ones are not told from wrong ones, and not heeded either.
  static constexpr std::size_t most_retracted = 256;

  template <class Predicate>
  std::vector<proposal> take_if(Predicate is_meant);

  const rank_t size_;
  std::uint64_t last_ = 0;
  std::map<std::uint64_t, proposal> open_;
  std::map<std::uint64_t, retracted> retracted_;
  std::uint64_t forgotten_ = 0;  ///< the last number dropped from `retracted_`
};

}  // namespace manyworlds::inline v0::detail::nccl
