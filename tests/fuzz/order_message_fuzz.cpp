// What members of a GPU world say of the order in which they launch, and of what they
// send: whatever the bytes, they are decoded or refused, and what was decoded says the
// same again.
#include <cstdint>
#include <cstdlib>
#include <span>

#include "host/device_payload.hpp"
#include "nccl/order_message.hpp"

using namespace manyworlds;

namespace {

void read_order(std::span<const std::byte> description) {
  const bytes once = encode(nccl::decode_order(description));
  if (encode(nccl::decode_order(once)) != once) std::abort();
}

void read_send(std::span<const std::byte> description) {
  const auto payload = host::decode_prefix(description);
  if (!payload) return;
  const nccl::send_description sent = nccl::decode_send(description, payload->bytes);
  const bytes once = encode(sent, payload->bytes, payload->type);
  const nccl::send_description again = nccl::decode_send(once, payload->bytes);
  if (again.layout.runs() != sent.layout.runs()) std::abort();
  nccl::layout_cursor cursor(sent.layout);
  std::uint64_t total = 0;
  while (cursor.left() > 0) {
    total += cursor.left();
    cursor.advance(cursor.left());
  }
  if (total != payload->bytes) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size < 1 + host::device_payload_prefix_size) return 0;
  const auto rest = std::as_bytes(std::span(data, size)).subspan(1);
  try {
    (data[0] % 2 == 0) ? read_order(rest) : read_send(rest);
  } catch (const wire_error&) {}
  return 0;
}
