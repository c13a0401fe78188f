// Frame: the units of the backend's byte stream, 40 bytes little-endian each. Content
// follows some of them. README.md beside this file says what each kind means.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>

#include "manyworlds/memory/dtype.hpp"

namespace manyworlds::inline v0::detail::host {

enum class frame_kind : std::uint8_t {
  eager = 1,  ///< a small message: head and payload follow
  offer,      ///< a larger message: the head follows, the payload waits to be pulled
  pull,       ///< receiver: send me the payload, from the start
  data,       ///< a slice of a pulled payload
  complete,   ///< the whole payload was sent, all of it valid
  taken,      ///< receiver: a receive has the whole message
  accepted,   ///< receiver: it keeps a copy of the whole message for a later receive
  unpull,     ///< receiver: stop, the receive was given up
  withdraw,   ///< sender: forget this message unless a receive has it
  withdrawn,  ///< receiver: forgotten, no receive has the message
  credit,     ///< receiver: this much of a lane's window is free again
  want,       ///< sender: a lane's first send waits for the window that all lanes share
  relaxed,    ///< sender: no send waits for that window any longer
  ready,      ///< receiver: a receive waits for the next message of a lane
  returned,   ///< receiver: no receive takes a granted message; the send waits again
  discarded,  ///< receiver: dropped, the lane is no longer received on
  ask,        ///< a waiting member of a collective: have you entered it?
  entered,    ///< the answer: how far this member is
  refuse,     ///< this member's part in a collective will not come
  leave,      ///< nothing follows but answers
  left,       ///< the answer to `leave`
  place,      ///< where in its source a member has entered a collective
  page,       ///< about the pages by which small collectives go
};
inline constexpr std::uint8_t last_frame_kind =
    static_cast<std::uint8_t>(frame_kind::page);

/// Holds one header. Fields that a kind does not use are zero on the wire, and checked.
struct frame {
  frame_kind kind = frame_kind::left;
  dtype type = dtype::uint8;     ///< eager, offer
  std::uint16_t head_bytes = 0;  ///< eager, offer
  std::uint32_t generation = 0;  ///< the pull it belongs to; else a small flag, see below
  std::uint64_t on = 0;          ///< the lane. refuse: the member that has left
  std::uint64_t id = 0;          ///< the message, or the collective's number
  std::uint64_t word = 0;        ///< user word; data: offset; credit: content; of a
                                 ///< collective: its signature; pull: a flag, see below
  std::uint64_t bytes = 0;  ///< payload, slice, content kept, or credit; entered: the
                            ///< last collective that this member has entered

  friend bool operator==(const frame&, const frame&) noexcept = default;
};

// Meanings of `generation` where there is no pull.
inline constexpr std::uint32_t eager_wants_taken = 1;
/// The payload describes one that another backend brings, see device_payload.hpp.
inline constexpr std::uint32_t eager_on_device = 2;
/// `ready` has asked for the message: it costs no window, and returns unless received.
inline constexpr std::uint32_t eager_granted = 4;
/// A payload of no bytes stands behind the head, and a receive takes it.
inline constexpr std::uint32_t eager_empty_payload = 8;
inline constexpr std::uint32_t offer_may_be_kept = 1;
inline constexpr std::uint32_t offer_granted = 2;
/// Meaning of a pull's `word`: the receiver reads the payload too, from its end, while it
/// awaits slices. What both bring counts once the receiver has taken the offer.
inline constexpr std::uint64_t pull_reads_too = 1;
/// For `ready`: a receive waits that takes lanes which were not received on yet.
inline constexpr std::uint32_t ready_for_fresh_lanes = 1;
inline constexpr std::uint32_t refuse_arguments = 0;
inline constexpr std::uint32_t refuse_closed = 1;
/// The sender's page was passed under the token `id`.
inline constexpr std::uint32_t page_passed = 0;
/// It has mapped all pages, and uses them from collective `id` on.
inline constexpr std::uint32_t page_ready = 1;
/// It never uses pages; `id` is 1.
inline constexpr std::uint32_t page_refused = 2;
/// As `page_ready`, and this member has a CPU for each member of the world.
inline constexpr std::uint32_t page_ready_with_cpus = 3;

inline constexpr std::size_t frame_size = 40;
using frame_bytes = std::array<std::byte, frame_size>;

/// The cost of one message in a window, besides the bytes that travel unasked.
inline constexpr std::size_t message_cost = 64;
inline constexpr std::uint64_t largest_message = std::uint64_t{1} << 46;

struct frame_limits {
  std::size_t eager_bytes = 0;  ///< head and payload of an eager message
  std::size_t slice_bytes = 0;  ///< payload of a data frame
  bool reads_too = false;       ///< a receiver can read payloads, too
};

/// Returns a number as it stands on the wire.
template <class Number>
[[nodiscard]] constexpr Number little_endian(Number value) noexcept {
  if constexpr (std::endian::native == std::endian::big) {
    Number swapped = 0;
    for (std::size_t i = 0; i < sizeof(Number); ++i) {
      swapped = static_cast<Number>(swapped << 8 | (value >> (8 * i) & 0xFF));
    }
    return swapped;
  }
  return value;
}

[[nodiscard]] frame_bytes encode(const frame& f) noexcept;

/// Reads a header as if a stranger wrote it. Returns null if `into` is well formed in
/// itself, otherwise what is wrong with it.
[[nodiscard]] const char* decode(std::span<const std::byte, frame_size> bytes,
                                 const frame_limits& limits, frame& into) noexcept;

/// Returns the number of content bytes that follow the header.
[[nodiscard]] std::size_t content_bytes(const frame& f) noexcept;

}  // namespace manyworlds::inline v0::detail::host
