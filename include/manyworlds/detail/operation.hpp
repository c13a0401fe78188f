// Operation: one send, receive or collective of one world, as its backend sees it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "manyworlds/address.hpp"
#include "manyworlds/detail/assertion.hpp"
#include "manyworlds/detail/observed.hpp"
#include "manyworlds/detail/view_list.hpp"
#include "manyworlds/failure.hpp"
#include "manyworlds/memory/dtype.hpp"
#include "manyworlds/source_position.hpp"
#include "manyworlds/time.hpp"
#include "manyworlds/world/message_info.hpp"

namespace manyworlds::inline v0::detail {

/// Describes a payload that another backend brings: only the description travels with
/// the head. A send fills it in; a receive learns it.
struct device_payload {
  std::size_t bytes = 0;  ///< of the payload; for a receive, what it has room for
  dtype type = dtype::uint8;
  bool takes_any = false;  ///< true for a receive of descriptions alone, of any payload
  std::vector<std::byte> description;
};

/// Names what a send that was not announced yet waits for.
enum class send_obstacle : std::uint8_t {
  none,
  earlier_sends,  ///< sends of its lane that were started before it
  lane_window,    ///< the peer holds all that it takes on this lane without a receive
  world_window,   ///< the same over all lanes: messages of other lanes are not received
  room,           ///< the connection is full for now
};
[[nodiscard]] constexpr const char* name_of(send_obstacle o) noexcept {
  switch (o) {
    case send_obstacle::none:
      break;
    case send_obstacle::earlier_sends:
      return "earlier sends of its lane";
    case send_obstacle::lane_window:
      return "the window of its lane";
    case send_obstacle::world_window:
      return "the window of the world, or a receive";
    case send_obstacle::room:
      return "room in the connection";
  }
  return "";
}

/// The members that one send goes to.
struct send_targets {
  std::span<const rank_t> ranks;
  bool all_others = false;  ///< `ranks` is empty: every member but this one
};

struct collective_part;
struct device_part;

enum class operation_end : std::uint8_t {
  done,       ///< it took effect, `info` is set
  failed,     ///< `failed_with` and `failure_detail` say how; the world may still be up
  withdrawn,  ///< given up before it took effect
};

class operation;
/// Ends an operation that a user awaits: it is an `operation_awaiter`.
void end_awaited(operation& op, operation_end how) noexcept;

/// The description and the state of one operation. It lives in the awaiter, in a
/// coroutine's frame; nothing is allocated for it. Thread: the world's reactor.
class operation {
 public:
  using ended_function = void (*)(operation&, operation_end) noexcept;

  /// Makes an operation of the library itself, or of a test, which ends by calling
  /// `ended`.
  operation(operation_kind k, ended_function ended) noexcept : kind(k), ended_(ended) {
    MW_ASSERT(ended, "an operation tells its owner that it has ended");
  }
  operation(const operation&) = delete;
  operation& operator=(const operation&) = delete;

  /// Bytes that a head may have at most: it travels with the announcement.
  static constexpr std::size_t largest_head = 4096;

  // The request.
  operation_kind kind;
  rank_t peer = no_rank;  ///< `no_rank` in a receive means any
  lane on;
  /// True for a receive that also takes the first message of a lane on which this
  /// member has not received yet.
  bool takes_fresh_lanes = false;
  bool delivered = false;         ///< a send ends when the peer has received the message
  bool discards = false;          ///< a receive discards its lane if it is given up
  std::optional<duration> limit;  ///< the world gives it up after this time
  /// Members that receive at once in the collective of this receive: a second thread
  /// that reads for it must not take the CPU of one of them. 0: not known, or no
  /// collective.
  rank_t receivers = 0;
  user_word user;
  void* head = nullptr;  ///< a send copies from it, a receive copies to it
  std::size_t head_bytes = 0;
  /// True for a send with a head if data was given to follow it, even of no bytes.
  bool gives_payload = false;
  /// A send reads `source` and a receive writes `target`. Lifetime: both refer to the
  /// list in the awaiter.
  const_view_list source;
  view_list target;
  /// If set, a send goes to all of these, and `peer` is `no_rank`.
  const send_targets* targets = nullptr;
  device_payload* on_device = nullptr;    ///< if set, a send's `source` describes it
  collective_part* collective = nullptr;  ///< for collectives on host memory; no barrier
  device_part* device = nullptr;          ///< for operations on device memory

  // The result.
  message_info info;
  enum cause failed_with = cause::none;
  std::string failure_detail;

  // For dumps.
  time_point started{};
  source_position where;
  observed<std::uint64_t> bytes_moved = 0;
  observed<bool> begun = false;
  observed<send_obstacle> waits_for = send_obstacle::none;

  /// Ends the operation: exactly once for each start, by the backend or the world (law
  /// 1). Lifetime: the operation may be gone when this returns.
  void end(operation_end how) noexcept {
    [[maybe_unused]] const bool again = std::exchange(has_ended_, true);
    [[maybe_unused]] const bool is_own = (on.number() & lane::reserved) != 0;
    MW_ASSERT(!again || is_own,
              "an operation ends once (law 1); only the library's own are used again");
    MW_ASSERT(how != operation_end::done || failed_with == cause::none || is_own,
              "an operation that took effect has no cause of failure");
    if (!ended_) [[likely]]
      return end_awaited(*this, how);
    ended_(*this, how);
  }
  void fail(enum cause why, std::string detail) noexcept {
    MW_ASSERT(why != cause::none, "an operation that fails by itself has a cause");
    failed_with = why;
    failure_detail = std::move(detail);
    end(operation_end::failed);
  }

  // Hooks of the world's list of pending operations.
  operation* next_pending = nullptr;
  operation* previous_pending = nullptr;
  /// For the backend.
  struct {
    operation* next = nullptr;
    operation* previous = nullptr;
    void* state = nullptr;
    std::uint64_t number = 0;
    std::size_t stage = 0;  ///< an enumeration of the backend
  } backend;

 protected:
  /// Makes an operation that a user awaits. Its end is a direct call: most are these.
  explicit operation(operation_kind k) noexcept : kind(k), ended_(nullptr) {}

 private:
  ended_function ended_;
  bool has_ended_ = false;
};

}  // namespace manyworlds::inline v0::detail
