// Whatever a store's client sends and however it is cut, the parser reads it the same
// way, keeps its limits, and takes nothing for a request that was not sent as one.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <span>
#include <string>

#include "store/tcp_store_protocol.hpp"

using namespace manyworlds;

namespace {

// Small, so that the fuzzer reaches both sides of each.
constexpr store_limits limits{16, 64, 8, 256};

void require(bool holds) {
  if (!holds) std::abort();
}

void check(const tcp_store_message& m) {
  require(m.keys.size() <= limits.keys_per_request);
  std::size_t bytes = 0;
  for (const std::string& key : m.keys) {
    require(key.size() <= limits.key_bytes);
    bytes += key.size();
  }
  for (const std::string& value : m.values) {
    require(value.size() <= limits.value_bytes);
    bytes += value.size();
  }
  require(bytes <= limits.request_bytes);
}

/// All requests of the bytes, given in pieces, encoded again. The operations of the
/// legacy dialect have other numbers: they stand as they came.
std::string parsed(std::span<const std::byte> bytes, std::size_t piece,
                   std::string& error) {
  tcp_store_parser parser(limits);
  const std::span<const std::byte> all = bytes;
  std::string again;
  while (!bytes.empty() && !parser.failed()) {
    auto input = bytes.first(std::min(piece, bytes.size()));
    bytes = bytes.subspan(input.size());
    while (parser.feed(input)) {
      const tcp_store_message m = parser.take();
      check(m);
      const std::size_t at = again.size();
      encode(m, again);
      if (parser.dialect() == tcp_store_dialect::legacy)
        again[at] = static_cast<char>(all[at]);
    }
    require(input.empty() || parser.failed());
  }
  error = parser.error();
  return again;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  // Behind a valid greeting most of the time, or little else would be reached.
  std::string input;
  if (data[0] % 4 != 0) input.assign("\x00\xce\xf7\x85\x3c", 5);
  input.append(reinterpret_cast<const char*>(data) + 1, size - 1);
  const auto bytes = std::as_bytes(std::span(input));
  std::string error;
  std::string other_error;
  const std::string whole = parsed(bytes, bytes.size(), error);
  require(whole == parsed(bytes, 1 + data[0] % 7, other_error));
  require(error == other_error);
  // What was understood is what was sent.
  require(whole == input.substr(0, whole.size()));
  return 0;
}
