// Call wire: what dispatchers and call servers say to each other, all of it on lane 0.
//
// The worker's hello comes first and says how many slots there are. A slot is free, or
// has one call: from the leader's `request` to the worker's `done` or `failed`, which
// always comes. The lane is in order, so that nothing of an earlier call can be taken for
// the slot's next. Replies cost their bytes and `reply_cost`. Credit is given for half a
// window at a time, so that a reply waits only when at least so much is on its way or
// unread (`must_wait`).
//
// Of a message that is given up the sender does not always learn whether it was taken (a
// peer that is stopped answers no withdrawal). So a slot stays taken until the worker has
// answered a `cancel`, also if it never got the request; and a worker whose replies were
// given up says by `sent` what they cost, got or not, before one waits for credit.
//
// A worker that leaves in order says `draining`. The leader gives it no more calls and
// says so by `no_more`, behind all requests whose sending has begun; the worker answers
// those that it reads after its `draining` by `given_back`. When it has read `no_more`
// and its handlers have ended it leaves the world, so that no call is lost with it.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "manyworlds/failure.hpp"

namespace manyworlds::inline v0::call_wire {

inline constexpr std::uint64_t hello_word = 0x6d77'6361'6c6c'0003;  // "mwcall", version 3
inline constexpr std::size_t reply_cost = 64;
inline constexpr std::size_t largest_text = 4096;
inline constexpr std::uint32_t most_slots = 65'536;
inline constexpr std::uint64_t no_deadline = ~std::uint64_t{0};

enum class order_kind : std::uint8_t {
  request = 1,  ///< a call for a slot, the request's bytes behind it
  control = 2,  ///< `count` entries behind it
};

/// From the leader.
struct order_head {
  order_kind kind;
  std::uint8_t unused[3];
  std::uint32_t slot;
  std::uint64_t id;
  /// Nanoseconds that are left when it is sent.
  std::uint64_t time_left;
  std::uint64_t window;
  std::uint64_t largest_reply;
  std::uint32_t earlier_tries;
  std::uint32_t count;
};

enum class control_kind : std::uint32_t {
  credit = 1,   ///< so much of the replies' cost was read since the call began
  cancel = 2,   ///< call `word` is not waited for; `done` if it has never come
  no_more = 3,  ///< an answer to `draining`: no request comes behind this
};

struct control_entry {
  control_kind kind;
  std::uint32_t slot;
  std::uint64_t word;
};

enum class answer_kind : std::uint8_t {
  hello = 1,     ///< `word` is `hello_word`, `slot` the slots, `size` the largest request
  load = 2,      ///< `word`
  reply = 3,     ///< its bytes behind it
  done = 4,      ///< the slot is free
  failed = 5,    ///< so it is; the text behind it
  sent = 6,      ///< `word`: cost of the call's replies so far, also of those given up
  draining = 7,  ///< takes no new calls; answered by `no_more`
  given_back = 8,  ///< the slot is free: its call was not begun
};

/// From the worker.
struct answer_head {
  answer_kind kind;
  /// Of `failed`.
  cause why;
  std::uint8_t unused[2];
  std::uint32_t slot;
  std::uint64_t word;
  std::uint64_t size;
};

static_assert(sizeof(order_head) == 48);
static_assert(sizeof(control_entry) == 16);
static_assert(sizeof(answer_head) == 24);

/// Whether a reply of that cost has to wait, with `unread` of the call's replies on their
/// way or unread. With less than half a window of them no credit may ever come.
[[nodiscard]] constexpr bool must_wait(std::uint64_t unread, std::uint64_t cost,
                                       std::uint64_t window) noexcept {
  return unread > 0 && unread >= window / 2 && cost > window - std::min(unread, window);
}

/// Of what a handler throws, what reaches the leader by its own name.
[[nodiscard]] constexpr bool is_handlers_own(cause c) noexcept {
  return c == cause::overloaded || c == cause::invalid_argument ||
         c == cause::unsupported || c == cause::handler_failed;
}

}  // namespace manyworlds::inline v0::call_wire
