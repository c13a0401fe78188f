// What members say of worlds over links, in queries and in the store: whatever the bytes,
// they are decoded or refused, and what was decoded says the same again.
#include <cstdint>
#include <cstdlib>
#include <span>
#include <string>

#include "manyworlds/link/process_address.hpp"
#include "manyworlds/world/control_message.hpp"

using namespace manyworlds;

namespace {

template <class Decode, class Encode>
void there_and_back(Decode decode, Encode encode) {
  const auto said = encode(decode());
  if (encode(decode()) != said) std::abort();
}

void read(unsigned kind, std::span<const std::byte> rest) {
  const std::string text(reinterpret_cast<const char*>(rest.data()), rest.size());
  switch (kind % 6) {
    case 0:
      there_and_back([&] { return decode_control(rest); },
                     [](const control_message& m) { return encode(m); });
      // What it encodes it can read.
      static_cast<void>(decode_control(encode(decode_control(rest))));
      break;
    case 1:
      static_cast<void>(decode_view(encode(decode_view(text))));
      break;
    case 2:
      static_cast<void>(join_record::decode(join_record::decode(text).encode()));
      break;
    case 3:
      static_cast<void>(decode_claim(encode(decode_claim(rest))));
      break;
    case 4:
      if (!rest.empty()) static_cast<void>(decode_answer(rest));
      break;
    default: {
      wire_reader in(rest);
      wire_writer out;
      process_address::read(in).write(out);
      wire_reader again(out.view());
      if (process_address::read(again).text().empty()) std::abort();
      break;
    }
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  const auto all = std::as_bytes(std::span(data, size));
  bool refused = false;
  try {
    read(data[0], all.subspan(1));
  } catch (const wire_error&) {
    refused = true;
  }
  // Refused alike each time.
  try {
    read(data[0], all.subspan(1));
    if (refused) std::abort();
  } catch (const wire_error&) {
    if (!refused) std::abort();
  }
  return 0;
}
