// Control messages: the words of members about worlds, over links, in queries and in
// the store.
#pragma once

#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "link/wire.hpp"
#include "manyworlds/failure.hpp"
#include "manyworlds/world/options.hpp"
#include "manyworlds/world/view.hpp"

namespace manyworlds::inline v0::detail {

/// A member's wish to be part of the next epoch, as it stands in the store.
struct join_record {
  process_address who;
  /// Random, and new for each try, so that answers to an old try are told apart.
  std::uint64_t attempt = 0;
  std::uint64_t last_epoch = 0;
  rank_t size = 0;
  backend_kind backend = backend_kind::host;

  [[nodiscard]] std::string encode() const;
  [[nodiscard]] static join_record decode(const std::string& text);
  /// Returns its key in the store.
  [[nodiscard]] static std::string key(const world_name& name, rank_t rank);
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
/// Rank 0 to a member: the world is not formed; join again.
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

// Between the survivors of a view, see shrink_protocol.hpp.

/// A survivor to the others: it calls `shrink()`.
struct survivor_message {
  world_name name;
  std::uint64_t epoch = 0;
  std::uint64_t base = 0;  ///< the id of the view that is shrunk
  std::uint64_t last_epoch = 0;
  bool asks = false;  ///< asks a receiver that shrinks the view too to say so
  /// Views that it agreed to and that may have been committed or not. Each lists its
  /// members as ranks in the base, in order.
  std::vector<std::vector<rank_t>> pending_votes;

  static constexpr std::size_t most_pending_votes = 16;
};
enum class member_status : std::uint8_t {
  no_part,    ///< it will never be a member of a successor of that view
  gone_on,    ///< it is a member of a later epoch; the asker is not
  succeeded,  ///< that view has a successor, and the asker is a member of it
};
/// The answer of a process that no longer shrinks that view.
struct status_message {
  std::uint64_t base = 0;
  member_status status = member_status::no_part;
  std::uint64_t epoch = 0;
  world_view view;  ///< the successor; without members unless `succeeded`
  /// Those of a sender that takes `no_part`, which cannot be asked again. See
  /// `survivor_message`.
  std::vector<std::vector<rank_t>> pending_votes;
};
/// The lowest of the survivors to the others: this is the next epoch; connect and say
/// `ready`.
struct successor_message {
  std::uint64_t base = 0;
  world_view view;
};

using control_message = std::variant<propose_message, ready_message, commit_message,
                                     rollback_message, refuse_message, broken_message,
                                     survivor_message, status_message, successor_message>;
[[nodiscard]] inline bool is_between_survivors(const control_message& m) noexcept {
  return std::holds_alternative<survivor_message>(m) ||
         std::holds_alternative<status_message>(m) ||
         std::holds_alternative<successor_message>(m);
}
[[nodiscard]] bytes encode(const control_message& message);
[[nodiscard]] control_message decode_control(std::span<const std::byte> message);

// --- queries

/// Asks the process that a record names: "Do you hold this rank?". Asks the other
/// members: "Is its holder gone, as you see it?". Members that see it dead or suspect
/// break the old epoch at once.
struct claim_query {
  world_name name;
  rank_t rank = no_rank;
  /// 0 asks the holder itself; otherwise the epoch that loses the member.
  std::uint64_t epoch = 0;
  /// That member. A process that no longer has its world may still know what became of
  /// it.
  incarnation holder;
};
enum class claim_answer : std::uint8_t {
  vacant,  ///< nothing is known here that speaks against the claim
  held,
  gone,  ///< the holder is dead, or silent for long enough to be suspect
};
[[nodiscard]] bytes encode(const claim_query& query);
[[nodiscard]] claim_query decode_claim(std::span<const std::byte> query);
/// Decodes an answer; unknown words count as `vacant`. Precondition: it is not empty.
[[nodiscard]] claim_answer decode_answer(std::span<const std::byte> answer) noexcept;

}  // namespace manyworlds::inline v0::detail
