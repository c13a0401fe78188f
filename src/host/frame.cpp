#include "host/frame.hpp"

#include <bit>
#include <cstring>
#include <optional>

#include "manyworlds/detail/operation.hpp"

namespace manyworlds::inline v0::detail::host {

namespace {

// Says which fields a kind may set.
enum frame_field : unsigned {
  uses_nothing = 0,
  uses_type = 1U << 0,
  uses_head = 1U << 1,
  uses_generation = 1U << 2,
  uses_on = 1U << 3,
  uses_id = 1U << 4,
  uses_word = 1U << 5,
  uses_bytes = 1U << 6,
};

constexpr unsigned fields_of(frame_kind kind) noexcept {
  constexpr unsigned announcement =
      uses_type | uses_head | uses_on | uses_id | uses_word | uses_bytes;
  switch (kind) {
    case frame_kind::eager:
    case frame_kind::offer:
      return announcement | uses_generation;
    case frame_kind::pull:
      return uses_id | uses_generation | uses_word;
    case frame_kind::complete:
    case frame_kind::unpull:
    case frame_kind::page:
      return uses_id | uses_generation;
    case frame_kind::data:
      return uses_id | uses_generation | uses_word | uses_bytes;
    case frame_kind::taken:
    case frame_kind::withdraw:
    case frame_kind::withdrawn:
    case frame_kind::returned:
    case frame_kind::discarded:
      return uses_id;
    case frame_kind::want:
      return uses_on;
    case frame_kind::ready:
      return uses_on | uses_generation;
    case frame_kind::accepted:
      return uses_id | uses_on | uses_bytes;
    case frame_kind::credit:
      return uses_on | uses_id | uses_word | uses_bytes;
    case frame_kind::ask:
      return uses_id | uses_word;
    case frame_kind::entered:
      return uses_id | uses_word | uses_bytes;
    case frame_kind::refuse:
      return uses_id | uses_generation | uses_on | uses_word;
    case frame_kind::place:
      return uses_id | uses_generation | uses_on | uses_word | uses_bytes;
    case frame_kind::relaxed:
    case frame_kind::leave:
    case frame_kind::left:
      return uses_nothing;
  }
  return uses_nothing;
}

template <class Number>
void put(frame_bytes& bytes, std::size_t at, Number value) noexcept {
  value = little_endian(value);
  std::memcpy(bytes.data() + at, &value, sizeof value);
}

template <class Number>
Number get(std::span<const std::byte, frame_size> bytes, std::size_t at) noexcept {
  Number value;
  std::memcpy(&value, bytes.data() + at, sizeof value);
  return little_endian(value);
}

const char* check_message(const frame& f, const frame_limits& limits) noexcept {
  if (f.head_bytes > operation::largest_head) return "a head of more than 4096 bytes";
  if (f.bytes > largest_message) return "a message beyond the largest size";
  if (f.bytes % size_of(f.type) != 0) return "a message that ends within an element";
  if (f.kind == frame_kind::offer) {
    if (f.generation > offer_granted) return "an offer with unknown flags";
    return f.bytes == 0 ? "an offer of nothing" : nullptr;
  }
  constexpr std::uint32_t known =
      eager_wants_taken | eager_on_device | eager_granted | eager_empty_payload;
  if (f.generation > known) return "an eager message with unknown flags";
  if ((f.generation & eager_granted) && !(f.generation & eager_wants_taken))
    return "a granted message without the flag for its answer";
  if ((f.generation & eager_empty_payload) && (f.bytes > 0 || f.head_bytes == 0))
    return "an eager message with flags that it cannot have";
  if (f.bytes + f.head_bytes > limits.eager_bytes)
    return "an eager message above the limit";
  return nullptr;
}

const char* check_fields(const frame& f, const frame_limits& limits) noexcept {
  const unsigned fields = fields_of(f.kind);
  const bool clean =
      ((fields & uses_head) || f.head_bytes == 0) &&
      ((fields & uses_generation) || f.generation == 0) &&
      ((fields & uses_on) || f.on == 0) && ((fields & uses_id) || f.id == 0) &&
      ((fields & uses_word) || f.word == 0) && ((fields & uses_bytes) || f.bytes == 0);
  if (!clean) return "a frame with fields that its kind does not have";
  if (f.id == 0 && (fields & uses_id) && f.kind != frame_kind::credit)
    return "a number of zero";
  switch (f.kind) {
    case frame_kind::eager:
    case frame_kind::offer:
      return check_message(f, limits);
    case frame_kind::data:
      if (f.bytes == 0 || f.bytes > limits.slice_bytes)
        return "a slice of a wrong length";
      if (f.word > largest_message) return "a slice beyond any message";
      return f.generation == 0 ? "a pull numbered zero" : nullptr;
    case frame_kind::pull:
      if (f.word > (limits.reads_too ? pull_reads_too : 0)) return "an unknown pull";
      [[fallthrough]];
    case frame_kind::complete:
    case frame_kind::unpull:
      return f.generation == 0 ? "a pull numbered zero" : nullptr;
    case frame_kind::credit:
      return f.bytes == 0 ? "a credit of nothing" : nullptr;
    case frame_kind::want:
      return f.on & lane::reserved ? "a want of a lane that has its own window" : nullptr;
    case frame_kind::ready:
      if (f.generation > ready_for_fresh_lanes) return "an unknown readiness";
      if (f.on & lane::reserved) return "a readiness of a lane that has its own window";
      return f.generation != 0 && f.on != 0 ? "fresh lanes with a number" : nullptr;
    case frame_kind::page:
      return f.generation > page_ready_with_cpus ? "an unknown word about pages"
                                                 : nullptr;
    case frame_kind::refuse:
      return f.generation > refuse_closed ? "an unknown way to refuse a collective"
                                          : nullptr;
    default:
      return nullptr;
  }
}

}  // namespace

frame_bytes encode(const frame& f) noexcept {
  frame_bytes bytes;
  const bool typed = (fields_of(f.kind) & uses_type) != 0;
  // One store: four would stall the wider loads that copy them next (store forwarding,
  // 5 ns).
  const std::uint64_t type = typed ? static_cast<std::uint8_t>(f.type) : 0;
  put(bytes, 0,
      std::uint64_t{static_cast<std::uint8_t>(f.kind)} | type << 8 |
          std::uint64_t{f.head_bytes} << 16 | std::uint64_t{f.generation} << 32);
  put(bytes, 8, f.on);
  put(bytes, 16, f.id);
  put(bytes, 24, f.word);
  put(bytes, 32, f.bytes);
  return bytes;
}

const char* decode(std::span<const std::byte, frame_size> bytes,
                   const frame_limits& limits, frame& into) noexcept {
  const auto kind = get<std::uint8_t>(bytes, 0);
  if (kind == 0 || kind > last_frame_kind) return "an unknown kind of frame";
  into = {};
  into.kind = static_cast<frame_kind>(kind);
  const auto type = get<std::uint8_t>(bytes, 1);
  if (fields_of(into.kind) & uses_type) {
    const std::optional<dtype> known = dtype_from_wire(type);
    if (!known) return "an unknown element type";
    into.type = *known;
  } else if (type != 0) {
    return "a frame with fields that its kind does not have";
  }
  into.head_bytes = get<std::uint16_t>(bytes, 2);
  into.generation = get<std::uint32_t>(bytes, 4);
  into.on = get<std::uint64_t>(bytes, 8);
  into.id = get<std::uint64_t>(bytes, 16);
  into.word = get<std::uint64_t>(bytes, 24);
  into.bytes = get<std::uint64_t>(bytes, 32);
  return check_fields(into, limits);
}

std::size_t content_bytes(const frame& f) noexcept {
  switch (f.kind) {
    case frame_kind::eager:
      return f.head_bytes + static_cast<std::size_t>(f.bytes);
    case frame_kind::offer:
      return f.head_bytes;
    case frame_kind::data:
      return static_cast<std::size_t>(f.bytes);
    default:
      return 0;
  }
}

}  // namespace manyworlds::inline v0::detail::host
