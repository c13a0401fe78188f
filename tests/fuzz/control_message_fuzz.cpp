// What members say of worlds over links, in queries and in the store: whatever the bytes,
// they are decoded or refused, and what was decoded says the same again.
#include <cstdint>
#include <cstdlib>
#include <span>
#include <string>

#include "link/wire_address.hpp"
#include "manyworlds/process_address.hpp"
#include "serve/join_queue.hpp"
#include "world/control_message.hpp"

using namespace manyworlds;

namespace {

/// What it encodes it can read, and says the same again.
template <class Said, class Decode, class Encode>
void there_and_back(const Said& said, Decode decode, Encode encode) {
  const auto once = encode(decode(said));
  if (encode(decode(once)) != once) std::abort();
}

void read(unsigned kind, std::span<const std::byte> rest) {
  const std::string text(reinterpret_cast<const char*>(rest.data()), rest.size());
  switch (kind % 7) {
    case 0:
      there_and_back(
          rest, [](const auto& bytes) { return decode_control(bytes); },
          [](const control_message& m) { return encode(m); });
      break;
    case 1:
      there_and_back(
          text, [](const auto& said) { return decode_view(said); },
          [](const auto& view) { return encode(view); });
      break;
    case 2:
      there_and_back(
          text, [](const auto& said) { return join_record::decode(said); },
          [](const join_record& join) { return join.encode(); });
      break;
    case 3:
      there_and_back(
          rest, [](const auto& bytes) { return decode_claim(bytes); },
          [](const auto& claim) { return encode(claim); });
      break;
    case 4:
      if (!rest.empty()) static_cast<void>(decode_answer(rest));
      break;
    case 6:
      there_and_back(
          text, [](const auto& said) { return join_entries::decode(said); },
          [](const join_entries& list) { return list.encode(); });
      break;
    case 5: {
      wire_reader in(rest);
      wire_writer out;
      write(read_address(in), out);
      wire_reader again(out.view());
      if (read_address(again).text().empty()) std::abort();
      break;
    }
    default:
      there_and_back(
          text, [](const auto& said) { return join_entries::decode(said); },
          [](const auto& peers) { return peers.encode(); });
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  const auto all = std::as_bytes(std::span(data, size));
  try {
    read(data[0], all.subspan(1));
  } catch (const wire_error&) {}
  return 0;
}
