// Node wire: the protocol between a controller and the agent of one node. The controller
// is rank 0 of their world.
//
// On `orders`: what the agent is to do, and what has come of it. Behind a head stands a
// text. On `commands` and `urgent`: what workers of the node are told, once for all that
// are named; behind a head stand these targets, then the block of the command. On
// `commands` come back, for each worker in order: that its control world is up, its
// replies with their blocks, that it is over. So a large block delays no `end`.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <type_traits>

#include "manyworlds/address.hpp"
#include "manyworlds/inline_text.hpp"
#include "spmd/command_wire.hpp"

namespace manyworlds::inline v0::detail::node_wire {

inline constexpr std::uint32_t version = 2;
inline constexpr std::size_t longest_text = 4096;

inline constexpr lane orders(0);
inline constexpr lane commands(1);
inline constexpr lane urgent(2);

/// The world of the controller and one node. The store is the session's own, so that the
/// name needs nothing of it.
[[nodiscard]] inline world_name node_name(int node) {
  return world_name("mwnode-" + std::to_string(node));
}

/// What the controller says before: for how long a peer may be silent, as
/// "SUSPECT LOST" in nanoseconds.
inline constexpr const char* limits_key = "mwnode-limits";

enum class order_kind : std::uint8_t {
  start = 1,  ///< a worker; the text is its invitation
  end = 2,    ///< a worker, after `patience` by force
  fail = 3,   ///< its control world; the text says why
};

struct order_head {
  std::uint64_t incarnation;
  std::int64_t patience;  ///< of `end`, in nanoseconds
  std::int32_t worker;
  order_kind kind;
  std::uint8_t unused[3];
};

enum class report_kind : std::uint8_t {
  hello = 1,      ///< the first one; `worker` is the version
  started = 2,    ///< with its pid
  ended = 3,      ///< by itself, or it could not start; the text says how
  gone = 4,       ///< what `end` was for: nothing is left of it
  suspect = 5,    ///< it is silent
  recovered = 6,  ///< it was heard again
};

struct report_head {
  std::uint64_t incarnation;
  std::int64_t pid;
  std::int32_t worker;
  report_kind kind;
  std::uint8_t unused[3];
};

/// A command; `targets` stand behind it, each with flags in place of these.
struct command_for {
  command_wire::command_head command;
  std::uint32_t targets;
  std::uint32_t unused;
};

/// A worker that is told a command.
struct command_target {
  std::uint64_t incarnation;
  /// How many urgent ones it is to have before.
  std::uint64_t behind;
  std::int32_t worker;
  std::uint8_t flags;
  std::uint8_t unused[3];
};

enum class word_kind : std::uint8_t {
  joined = 1,  ///< the control world is up
  reply = 2,
  over = 3,  ///< the control world is, by `why`; the text says more
};

/// What comes of a worker.
struct word_of {
  command_wire::reply_head reply;
  std::uint64_t incarnation;
  std::int64_t noticed_after;  ///< of `over`, in nanoseconds
  std::int32_t worker;
  word_kind kind;
  std::uint8_t why;  ///< of `over`, a `cause`
  std::uint8_t unused[2];
};

static_assert(std::is_trivially_copyable_v<command_for> && sizeof(command_for) == 56);
static_assert(std::is_trivially_copyable_v<command_target> &&
              sizeof(command_target) == 24);
static_assert(std::is_trivially_copyable_v<word_of> && sizeof(word_of) == 80);
static_assert(std::is_trivially_copyable_v<order_head> && sizeof(order_head) == 24);
static_assert(std::is_trivially_copyable_v<report_head> && sizeof(report_head) == 24);

}  // namespace manyworlds::inline v0::detail::node_wire
