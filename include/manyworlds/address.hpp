// Address: ranks, lanes and the strong types that name them in calls.
#pragma once

#include <cstdint>

#include "manyworlds/detail/config.hpp"

namespace manyworlds::inline v0 {

/// A member's number in a world, 0 to size - 1. A process has another rank in each
/// world.
using rank_t = std::int32_t;

/// No member.
inline constexpr rank_t no_rank = -1;

/// The receiver of a send. Explicit, since a literal 0 could be a rank, a lane or a
/// count.
class to {
 public:
  constexpr explicit to(rank_t rank) noexcept : rank_(rank) {}
  [[nodiscard]] constexpr rank_t rank() const noexcept { return rank_; }

 private:
  rank_t rank_;
};

/// The member that a collective starts from or ends at.
class root {
 public:
  constexpr explicit root(rank_t rank) noexcept : rank_(rank) {}
  [[nodiscard]] constexpr rank_t rank() const noexcept { return rank_; }

 private:
  rank_t rank_;
};

/// Stands for every member, in a receive: see `any`.
struct any_rank {
  explicit any_rank() = default;
};

/// Any member. Fair: members that have sent take turns.
inline constexpr any_rank any{};

/// The sender to receive from, or `any`.
class from {
 public:
  constexpr explicit from(rank_t rank) noexcept : rank_(rank) {}
  constexpr from(any_rank) noexcept : rank_(no_rank) {}
  [[nodiscard]] constexpr rank_t rank() const noexcept { return rank_; }
  [[nodiscard]] constexpr bool is_any() const noexcept { return rank_ == no_rank; }

 private:
  rank_t rank_;
};

/// An independent ordered sequence of messages between two members; lanes do not block
/// each other. Numbers with the top bit set are the library's own.
class lane {
 public:
  constexpr lane() noexcept = default;
  constexpr explicit lane(std::uint64_t number) noexcept : number_(number) {}
  [[nodiscard]] constexpr std::uint64_t number() const noexcept { return number_; }
  friend constexpr bool operator==(lane, lane) noexcept = default;

  /// The bit of numbers that are the library's own.
  static constexpr std::uint64_t reserved = std::uint64_t{1} << 63;

 private:
  std::uint64_t number_ = 0;
};

/// 64 bits of the user that every message carries.
class user_word {
 public:
  constexpr user_word() noexcept = default;
  constexpr explicit user_word(std::uint64_t value) noexcept : value_(value) {}
  [[nodiscard]] constexpr std::uint64_t value() const noexcept { return value_; }

 private:
  std::uint64_t value_ = 0;
};

}  // namespace manyworlds::inline v0
