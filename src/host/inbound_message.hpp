// Inbound message: a message that a peer has sent or announced, until a receive has all
// of it.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>

#include "host/cell_frame.hpp"
#include "host/device_payload.hpp"
#include "manyworlds/detail/assertion.hpp"
#include "manyworlds/detail/operation.hpp"
#include "memory/view_cursor.hpp"

namespace manyworlds::inline v0::detail::host {

struct inbound_lane;

/// Holds one message of its lane's queue. Only the head of a queue can have a taker.
struct inbound_message {
  rank_t source = no_rank;
  inbound_lane* on = nullptr;
  std::uint64_t id = 0;
  std::uint64_t user = 0;
  dtype type = dtype::uint8;
  std::size_t head_bytes = 0;  ///< 0 once the head was taken
  std::size_t payload_bytes = 0;
  std::size_t cost = 0;  ///< of the lane's window
  std::size_t accounted =
      0;  ///< content the sender counts as undelivered until it is credited
  bool is_accounted = false;  ///< the sender counts it so
  bool is_kept = false;       ///< in its lane's queue, and on the heap
  bool offered = false;       ///< the payload is still at the sender
  bool wants_taken = false;
  /// The content is not a payload but the description of one that another backend
  /// brings.
  bool on_device = false;
  device_payload_prefix prefix;
  /// It costs no window, and is sent back if no receive takes it.
  bool granted = false;
  bool may_be_kept = false;  ///< offered, but small enough to be copied unasked
  /// The payload is being copied here although no receive waits. No receive gets the
  /// message before that ends.
  bool collecting = false;
  bool head_taken = false;
  /// A receive takes something behind the head, even if it has no bytes.
  bool has_payload = true;
  /// Its window was returned and its sender told, though it is still here.
  bool is_settled = false;
  /// The sender gave it up after its head was taken; the receive of its payload is
  /// told.
  bool cancelled = false;
  /// Where the payload lies; for an offer over shared memory.
  remote_payload remote;
  std::uint64_t arrival = 0;
  time_point came{};
  /// The head, then the payload if it came along.
  std::span<const std::byte> content;
  std::unique_ptr<std::byte[]> owned_content;
  buffer_view collected;  ///< what a collected message is put together in
  inbound_message* next = nullptr;
  inbound_message* previous = nullptr;

  // The following fields count while a receive pulls the message or it is collected.
  operation* taker = nullptr;
  view_cursor target;
  std::uint32_t generation = 0;
  /// The sender was asked for the message, and its slices count.
  bool asked = false;
  /// It is read all the same, from its end, while no slice is there; the offer decides.
  bool is_read_too = false;
  std::size_t received = 0;
  std::size_t from_end = 0;    ///< of `received`, what was read from the end
  unsigned awaits_slices = 0;  ///< for how many looks more nothing is read
  std::size_t reads_next = 0;  ///< how much is read then
  /// The kernel holds the taker's memory; the taker gives up once the kernel lets go.
  bool giving_up = false;
  time_point last_progress{};

  [[nodiscard]] std::size_t total_bytes() const noexcept {
    return head_bytes + payload_bytes;
  }
  /// Returns whether only a payload of no bytes is left. It waits here for a receiver
  /// that takes that too, and holds none of the window.
  [[nodiscard]] bool is_spent() const noexcept {
    return head_taken && (on_device ? prefix.bytes == 0 : payload_bytes == 0);
  }
  [[nodiscard]] bool is_being_brought() const noexcept { return taker || collecting; }
  /// Returns where the payload goes, from its start.
  [[nodiscard]] view_cursor payload_place() const {
    view_cursor place(taker ? taker->target : view_list(std::span(&collected, 1)));
    MW_ASSERT(place.remaining() >= payload_bytes,
              "a message has room for its payload where it is brought to");
    place.advance(place.remaining() - payload_bytes);
    return place;
  }
  [[nodiscard]] message_info info(std::uint64_t lane_number) const {
    message_info known;
    known.source = source;
    known.on = lane(lane_number);
    known.user = user_word(user);
    known.bytes = payload_bytes;
    known.count = count_of(payload_bytes, type);
    known.type = type;
    known.head_bytes = head_bytes;
    known.has_payload = has_payload;
    if (on_device) [[unlikely]] {
      known.bytes = prefix.bytes;
      known.type = prefix.type;
      known.count = count_of(known.bytes, known.type);
      known.on_device = true;
    }
    return known;
  }
};

/// Belongs to its lane's queue. Small content needs no separate allocation.
struct kept_message : inbound_message {
  explicit kept_message(inbound_message&& m) noexcept : inbound_message(std::move(m)) {}

  std::array<std::byte, 128> small_content;
};

}  // namespace manyworlds::inline v0::detail::host
