// Call wire: the protocol between dispatchers and call servers, all of it on lane 0.
//
// The worker's hello comes first and says how many slots there are. A slot is free, or
// has one call: from the leader's `request` to the worker's `done` or `failed`, which
// always comes. The lane is in order, so that no message of an earlier call can be
// taken for one of the slot's next call. A reply costs its bytes and `reply_cost`.
// Credit is given for half a window at a time, so that a reply waits only when at least
// that much is on its way or unread (`must_wait`).
//
// The sender of a message that is given up does not always learn whether it was taken:
// a peer that is stopped answers no withdrawal. So a slot stays taken until the worker
// has answered a `cancel`, also if it never got the request. A worker that has given up
// replies says by `sent` what they cost, received or not, before a later reply waits
// for credit.
//
// A worker that leaves in order says `draining`. The leader gives it no more calls and
// says so by `no_more`, behind all requests that it has begun to send. The worker
// answers the requests that it reads after its `draining` by `given_back`. When it has
// read `no_more` and its handlers have ended it leaves the world, so that no call is
// lost.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "link/wire.hpp"
#include "manyworlds/failure.hpp"

namespace manyworlds::inline v0::detail::call_wire {

inline constexpr std::uint64_t hello_word = 0x6d77'6361'6c6c'0003;  // "mwcall", version 3
inline constexpr std::size_t reply_cost = 64;
inline constexpr std::size_t largest_text = 4096;
inline constexpr std::uint32_t most_slots = 65'536;
inline constexpr std::uint64_t no_deadline = ~std::uint64_t{0};

enum class order_kind : std::uint8_t {
  request = 1,  ///< a call for a slot; the request's bytes follow
  control = 2,  ///< `count` entries follow
};

/// A message of the leader.
struct order_head {
  order_kind kind;
  std::uint8_t unused[3];
  std::uint32_t slot;
  std::uint64_t id;
  /// Nanoseconds that are left at the time of sending.
  std::uint64_t time_left;
  std::uint64_t window;
  std::uint64_t largest_reply;
  std::uint32_t earlier_tries;
  std::uint32_t count;
};

enum class control_kind : std::uint32_t {
  credit = 1,   ///< `word`: cost of the call's replies that were read so far
  cancel = 2,   ///< call `word` is not awaited; answered by `done` if it never came
  no_more = 3,  ///< the answer to `draining`: no request follows
};

struct control_entry {
  control_kind kind;
  std::uint32_t slot;
  std::uint64_t word;
};

enum class answer_kind : std::uint8_t {
  hello = 1,     ///< `word` is `hello_word`, `slot` the slots, `size` the largest request
  load = 2,      ///< `word`
  reply = 3,     ///< its bytes follow
  done = 4,      ///< the slot is free
  failed = 5,    ///< the slot is free; the text follows
  sent = 6,      ///< `word`: cost of the call's replies so far, also of those given up
  draining = 7,  ///< takes no new calls; answered by `no_more`
  given_back = 8,  ///< the slot is free: its call was not begun
};

/// A message of the worker.
struct answer_head {
  answer_kind kind;
  /// The cause of `failed`.
  cause why;
  std::uint8_t unused[2];
  std::uint32_t slot;
  std::uint64_t word;
  std::uint64_t size;
};

static_assert(sizeof(order_head) == 48);
static_assert(sizeof(control_entry) == 16);
static_assert(sizeof(answer_head) == 24);
// They travel as their bytes.
static_assert(std::is_trivially_copyable_v<order_head> &&
              std::is_trivially_copyable_v<control_entry> &&
              std::is_trivially_copyable_v<answer_head>);
// Empty replies use up the window too, so that it bounds their number.
static_assert(reply_cost > 0);

/// Returns whether a reply of that cost has to wait, with `unread` of the call's
/// replies on their way or unread. While they are less than half a window no credit may
/// ever come, so it does not wait.
[[nodiscard]] constexpr bool must_wait(std::uint64_t unread, std::uint64_t cost,
                                       std::uint64_t window) noexcept {
  return unread > 0 && unread >= window / 2 && cost > window - std::min(unread, window);
}
static_assert(!must_wait(0, 65, 64), "a reply that is larger than the window goes alone");
static_assert(must_wait(64, 1, 64), "a full window makes each reply wait");

/// The largest cost of one call's replies: counters of it, and a reply more, cannot wrap.
inline constexpr std::uint64_t largest_cost = std::uint64_t{1} << 62;

/// Returns the most that replies on their way or unread can cost at a worker that heeds
/// `must_wait`.
[[nodiscard]] constexpr std::uint64_t most_unread(std::uint64_t largest_reply,
                                                  std::uint64_t window) noexcept {
  const std::uint64_t last = std::min(largest_reply, largest_cost) + reply_cost;
  return std::max(window, window / 2 + last);
}
static_assert(most_unread(0, 1000) == 1000, "small replies fill the window");
static_assert(most_unread(2000, 1000) == 2564, "one large reply may exceed the window");

/// Returns whether a handler's exception of that cause reaches the leader with its
/// cause.
[[nodiscard]] constexpr bool is_handlers_own(cause c) noexcept {
  return c == cause::overloaded || c == cause::invalid_argument ||
         c == cause::unsupported || c == cause::handler_failed;
}

}  // namespace manyworlds::inline v0::detail::call_wire
