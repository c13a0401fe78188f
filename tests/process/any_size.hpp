// Messages of a size that the receiver learns as they come.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "manyworlds/mw.hpp"

namespace manyworlds::process_tests {

/// Takes the next message from `peer` into `buffer`: its part of that. Nothing if it is
/// larger than all of it; then it stays.
inline task<std::span<std::uint8_t>> take_any(world& w, rank_t peer,
                                              std::vector<std::uint8_t>& buffer,
                                              duration limit = std::chrono::hours(1)) {
  const message_info info = co_await w.arrival(from(peer)).within(limit);
  if (info.bytes > buffer.size()) co_return {};
  const std::span<std::uint8_t> message = std::span(buffer).first(info.bytes);
  co_await w.recv(message, from(peer)).within(limit);
  co_return message;
}

}  // namespace manyworlds::process_tests
