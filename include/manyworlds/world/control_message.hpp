// Control messages: what members say about worlds, over links, in queries and in the
// store.
#pragma once

#include <cstdint>
#include <string>
#include <variant>

#include "manyworlds/failure.hpp"
#include "manyworlds/link/wire.hpp"
#include "manyworlds/world/view.hpp"

namespace manyworlds::inline v0 {

/// A member's wish to be part of the next epoch, as it stands in the store.
struct join_record {
  process_address who;
  /// Random; a new one for each try, so that nobody answers for an old one.
  std::uint64_t attempt = 0;
  std::uint64_t last_epoch = 0;
  rank_t size = 0;

  [[nodiscard]] std::string encode() const;
  [[nodiscard]] static join_record decode(const std::string& text);
};

[[nodiscard]] std::string encode(const world_view& view);
[[nodiscard]] world_view decode_view(const std::string& text);

// --- over links

/// Rank 0 to a member: this is the next epoch; connect and say `ready`.
struct propose_message {
  world_view view;
  rank_t rank = no_rank;
  std::uint64_t attempt = 0;
};
/// A member to rank 0: connected to all, or unable to.
struct ready_message {
  std::uint64_t world_id = 0;
  rank_t rank = no_rank;
  bool able = false;
  std::string reason;
};
/// Rank 0 to a member: the world is formed.
struct commit_message {
  std::uint64_t world_id = 0;
};
/// Rank 0 to a member: it is not; join again.
struct rollback_message {
  std::uint64_t world_id = 0;
  std::string reason;
};
/// Rank 0 to a member: this try cannot succeed.
struct refuse_message {
  std::uint64_t attempt = 0;
  enum cause why = cause::none;
  std::string reason;
};
/// Member to member: the world is broken.
struct broken_message {
  std::uint64_t world_id = 0;
  enum cause why = cause::none;
  rank_t culprit = no_rank;
  std::string detail;
};

using control_message = std::variant<propose_message, ready_message, commit_message,
                                     rollback_message, refuse_message, broken_message>;
[[nodiscard]] bytes encode(const control_message& message);
[[nodiscard]] control_message decode_control(std::span<const std::byte> message);

// --- queries

/// "Do you hold this rank?" of the process that a record names, and "is its holder gone,
/// as you see it?" of the other members: those that see it dead or suspect break the old
/// epoch at once.
struct claim_query {
  world_name name;
  rank_t rank = no_rank;
  /// 0: asks the holder itself; else the epoch whose member is to be replaced.
  std::uint64_t epoch = 0;
  /// Of that member: also who has not its world any more may know what became of it.
  incarnation holder;
};
enum class claim_answer : std::uint8_t {
  vacant,  ///< nothing is known here that speaks against the claim
  held,
  gone,  ///< the holder is dead, or has been silent for long enough to be suspect
};
[[nodiscard]] bytes encode(const claim_query& query);
[[nodiscard]] claim_query decode_claim(std::span<const std::byte> query);
/// Of an answer that is not empty; what is no answer counts as `vacant`.
[[nodiscard]] claim_answer decode_answer(std::span<const std::byte> answer) noexcept;

}  // namespace manyworlds::inline v0
