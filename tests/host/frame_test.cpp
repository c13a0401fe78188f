#include "host/frame.hpp"

#include <doctest/doctest.h>

#include <cstring>
#include <string>

#include "manyworlds/address.hpp"

using namespace manyworlds;
using namespace manyworlds::host;

namespace {

constexpr frame_limits limits{32 * 1024, 256 * 1024};

std::string verdict(const frame_bytes& bytes) {
  frame f;
  const char* wrong = decode(bytes, limits, f);
  return wrong ? wrong : "";
}

frame sample(frame_kind kind) {
  frame f;
  f.kind = kind;
  switch (kind) {
    case frame_kind::eager:
      return {kind, dtype::float32, 16, 1, 7, 3, 99, 400};
    case frame_kind::offer:
      return {kind, dtype::float64, 4096, 0, 7, 4, 99, 1 << 20};
    case frame_kind::pull:
    case frame_kind::complete:
    case frame_kind::unpull:
      f.id = 5;
      f.generation = 2;
      return f;
    case frame_kind::data:
      return {kind, dtype::uint8, 0, 1, 0, 4, 262'144, 262'144};
    case frame_kind::taken:
    case frame_kind::withdraw:
    case frame_kind::withdrawn:
    case frame_kind::returned:
    case frame_kind::discarded:
      f.id = 6;
      return f;
    case frame_kind::want:
    case frame_kind::ready:
      f.on = 9;
      return f;
    case frame_kind::accepted:
      f.id = 6;
      f.on = 7;
      f.bytes = 80;
      return f;
    case frame_kind::credit:
      return {kind, dtype::uint8, 0, 0, 7, 2, 800, 928};
    case frame_kind::ask:
      f.id = 1;
      f.word = 6;
      return f;
    case frame_kind::entered:
      f.id = 1;
      f.word = 6;
      f.bytes = 4;
      return f;
    case frame_kind::place:
      return {kind, dtype::uint8, 0, 12, 0x6161, 3, 0x6262, 0x6363};
    case frame_kind::refuse:
      f.id = 1;
      f.generation = 1;
      f.on = 2;
      f.word = 6;
      return f;
    case frame_kind::page:
      f.id = 5;
      f.generation = 2;
      return f;
    default:
      return f;
  }
}

}  // namespace

TEST_SUITE("host frame") {
  TEST_CASE("every kind of frame survives the wire") {
    for (std::uint8_t kind = 1; kind <= last_frame_kind; ++kind) {
      const frame f = sample(static_cast<frame_kind>(kind));
      CAPTURE(int{kind});
      frame read;
      CHECK(decode(encode(f), limits, read) == nullptr);
      CHECK(read == f);
    }
  }

  TEST_CASE("numbers travel in little-endian order whatever the machine's is") {
    frame f = sample(frame_kind::taken);
    f.id = 0x0102030405060708;
    const frame_bytes bytes = encode(f);
    CHECK(bytes[16] == std::byte{8});
    CHECK(bytes[23] == std::byte{1});
  }

  TEST_CASE("a frame that lies about itself is named") {
    frame f = sample(frame_kind::eager);
    f.bytes = 32 * 1024;
    CHECK(verdict(encode(f)) == "an eager message above the limit");
    f = sample(frame_kind::eager);
    f.bytes = 401;
    CHECK(verdict(encode(f)) == "a message that ends within an element");
    f = sample(frame_kind::eager);
    f.generation = eager_wants_taken | eager_on_device;
    CHECK(verdict(encode(f)).empty());
    f.generation = eager_granted;
    CHECK(verdict(encode(f)) == "a granted message without the flag for its answer");
    f.generation = eager_granted | eager_wants_taken | eager_on_device;
    CHECK(verdict(encode(f)).empty());
    f.generation = 16;
    CHECK(verdict(encode(f)) == "an eager message with unknown flags");
    f.generation = eager_empty_payload;
    CHECK(verdict(encode(f)) == "an eager message with flags that it cannot have");
    f.bytes = 0;
    CHECK(verdict(encode(f)).empty());
    f.head_bytes = 0;
    CHECK(verdict(encode(f)) == "an eager message with flags that it cannot have");
    f = sample(frame_kind::offer);
    f.generation = offer_granted;
    CHECK(verdict(encode(f)).empty());
    f.generation = offer_granted | offer_may_be_kept;
    CHECK(verdict(encode(f)) == "an offer with unknown flags");
    f = sample(frame_kind::want);
    f.on = lane::reserved | 1;
    CHECK(verdict(encode(f)) == "a want of a lane that has its own window");
    f = sample(frame_kind::ready);
    f.generation = ready_for_fresh_lanes;
    CHECK(verdict(encode(f)) == "fresh lanes with a number");
    f.on = 0;
    CHECK(verdict(encode(f)).empty());
    f.generation = 2;
    CHECK(verdict(encode(f)) == "an unknown readiness");
    f = sample(frame_kind::ready);
    f.on = lane::reserved | 2;
    CHECK(verdict(encode(f)) == "a readiness of a lane that has its own window");
    f = sample(frame_kind::offer);
    f.head_bytes = 4097;
    CHECK(verdict(encode(f)) == "a head of more than 4096 bytes");
    f = sample(frame_kind::offer);
    f.bytes = ~std::uint64_t{7};
    CHECK(verdict(encode(f)) == "a message beyond the largest size");
    f = sample(frame_kind::offer);
    f.bytes = 0;
    CHECK(verdict(encode(f)) == "an offer of nothing");
    f = sample(frame_kind::data);
    f.bytes = limits.slice_bytes + 1;
    CHECK(verdict(encode(f)) == "a slice of a wrong length");
    f = sample(frame_kind::data);
    f.word = ~std::uint64_t{0};
    CHECK(verdict(encode(f)) == "a slice beyond any message");
    f = sample(frame_kind::pull);
    f.generation = 0;
    CHECK(verdict(encode(f)) == "a pull numbered zero");
    // Over a stream no receiver reads.
    f = sample(frame_kind::pull);
    f.word = pull_reads_too;
    CHECK(verdict(encode(f)) == "an unknown pull");
    frame_limits in_memory = limits;
    in_memory.reads_too = true;
    frame read;
    CHECK(decode(encode(f), in_memory, read) == nullptr);
    CHECK(read == f);
    f.word = pull_reads_too + 1;
    CHECK(decode(encode(f), in_memory, read) == std::string("an unknown pull"));
    f = sample(frame_kind::taken);
    f.id = 0;
    CHECK(verdict(encode(f)) == "a number of zero");
    f = sample(frame_kind::credit);
    f.bytes = 0;
    CHECK(verdict(encode(f)) == "a credit of nothing");
    f = sample(frame_kind::refuse);
    f.generation = 2;
    CHECK(verdict(encode(f)) == "an unknown way to refuse a collective");
  }

  TEST_CASE(
      "an unknown kind, an unknown type and unused fields that are set are refused") {
    frame_bytes bytes = encode(sample(frame_kind::leave));
    bytes[0] = std::byte{0};
    CHECK(verdict(bytes) == "an unknown kind of frame");
    bytes[0] = std::byte{last_frame_kind + 1};
    CHECK(verdict(bytes) == "an unknown kind of frame");
    bytes = encode(sample(frame_kind::eager));
    bytes[1] = std::byte{dtype_count};
    CHECK(verdict(bytes) == "an unknown element type");
    for (const std::size_t at : {1U, 2U, 4U, 8U, 16U, 24U, 32U}) {
      bytes = encode(sample(frame_kind::leave));
      bytes[at] = std::byte{1};
      CHECK(verdict(bytes) == "a frame with fields that its kind does not have");
    }
  }
}
