// Order messages: what the members of a GPU world tell each other over the link, so that
// all of them launch in one order. They are descriptions (host/device_payload.hpp) of no
// payload, on a lane of the library's own.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <variant>

#include "link/wire.hpp"
#include "manyworlds/address.hpp"
#include "manyworlds/failure.hpp"
#include "manyworlds/memory/dtype.hpp"
#include "manyworlds/memory/reduction.hpp"
#include "nccl/payload_layout.hpp"

namespace manyworlds::inline v0::detail::nccl {

inline constexpr lane order_lane{lane::reserved | 1};

/// A place in the order of the members' GPUs (launch_order.hpp).
struct launch_place {
  std::uint64_t number = 0;  ///< the proposal's; 0: this world has no places
  std::uint64_t time = 0;

  [[nodiscard]] bool is_none() const noexcept { return number == 0; }
};

/// A member tells rank 0, once, how it would take part in the communicator.
struct hello_message {
  std::string device;  ///< equal for members that share a GPU
  std::int32_t version = 0;
  std::int32_t capability = 0;  ///< the device's: 90 is sm90
  bool adopts = false;
};
/// Rank 0 tells a member, once, to make the communicator of this id, or to adopt its
/// own.
struct create_message {
  std::array<std::byte, 128> id{};
  /// The least of all members' devices: what all of them can do.
  std::int32_t capability = 0;
  /// The world's number in the orders of its GPUs, drawn at random.
  std::uint64_t order = 0;
  /// The members that share a GPU, for the one that is refused for it.
  std::string note;
};
/// A receiver tells rank 0 that its receive has matched that member's send.
struct pair_request {
  rank_t sender = no_rank;
  std::uint64_t token = 0;  ///< the sender's number for it
  std::uint64_t bytes = 0;
  payload_layout layout;  ///< the receiver's
};
/// Rank 0 tells sender and receiver that this is their next launch.
struct pair_launch {
  rank_t sender = no_rank;
  rank_t receiver = no_rank;
  std::uint64_t token = 0;
  std::uint64_t bytes = 0;
  payload_layout layout;  ///< the receiver's
  launch_place place;
};
/// Rank 0 tells a receiver, or a sender, that the other has left and will not launch
/// it.
struct pair_closed {
  rank_t sender = no_rank;
  std::uint64_t token = 0;
};
[[nodiscard]] constexpr bool changes_memory(operation_kind k) noexcept {
  return k == operation_kind::suspend_device || k == operation_kind::resume_device;
}

/// Holds what members must agree on.
struct collective_terms {
  operation_kind kind = operation_kind::none;
  dtype type = dtype::uint8;
  reduction by = sum;
  rank_t root = no_rank;
  std::uint64_t count = 0;  ///< elements of one member's part

  /// Returns whether it computes with elements, and does not only move them.
  [[nodiscard]] bool reduces() const noexcept;
  /// Returns a text such as "all_reduce of 4 float32 (sum)".
  [[nodiscard]] std::string text() const;
  friend bool operator==(const collective_terms&,
                         const collective_terms&) noexcept = default;
};
/// A member tells rank 0 that it has entered its collective of that number (1, 2, 3
/// ...).
struct enter_message {
  std::uint64_t number = 0;
  collective_terms terms;
};
/// Rank 0 tells all that every member has entered it: it is their next launch.
struct collective_launch {
  std::uint64_t number = 0;
  launch_place place;
};
/// No collective has this number: there will be no communicator.
inline constexpr std::uint64_t never = 0;
/// Rank 0 tells all that this member has left, and that this collective will not be.
struct collective_closed {
  std::uint64_t number = 0;
  rank_t left = no_rank;
};
/// A member tells rank 0, once, that its communicator is made but for connecting the
/// peers, and that no world on its GPU launches without places.
struct made_message {};
/// Rank 0 tells all, once, that every member has made it: they connect the peers.
struct connect_message {
  launch_place place;
};
/// A member tells rank 0, once, that another world is on its GPU.
struct crowded_message {};
/// Rank 0 tells all, once, that what is launched from here on has places.
struct places_message {};
/// Rank 0 asks all that will launch an operation to hold a place for it. Numbers grow.
struct propose_message {
  std::uint64_t number = 0;
};
/// A member answers that this place is held.
struct promise_message {
  std::uint64_t number = 0;
  std::uint64_t time = 0;
};
/// Rank 0 tells the same members that the place is no longer held.
struct retract_message {
  std::uint64_t number = 0;
};

using order_message =
    std::variant<hello_message, create_message, pair_request, pair_launch, pair_closed,
                 enter_message, collective_launch, collective_closed, made_message,
                 connect_message, crowded_message, places_message, propose_message,
                 promise_message, retract_message>;

/// Encodes a message, with the beginning of a description in front.
[[nodiscard]] bytes encode(const order_message& message);
/// Decodes a message. Errors: wire_error.
[[nodiscard]] order_message decode_order(std::span<const std::byte> description);

/// Describes a send from device memory.
struct send_description {
  std::uint64_t token = 0;
  payload_layout layout;
};
[[nodiscard]] bytes encode(const send_description& d, std::uint64_t total, dtype type);
[[nodiscard]] send_description decode_send(std::span<const std::byte> description,
                                           std::uint64_t total);

}  // namespace manyworlds::inline v0::detail::nccl
