// Payload memory: where a benchmark's messages lie.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "questions.hpp"

namespace mwbench {

/// The places of one message, in the order of its bytes.
using pieces = std::vector<std::span<char>>;

/// Touched throughout, so that no page is met for the first time while it counts.
class payload_memory {
 public:
  payload_memory(mw::runtime& rt, const p2p_options& o, std::size_t bytes);

  [[nodiscard]] std::span<char> bytes() const noexcept { return bytes_; }
  /// `size` bytes from `offset` on, in as many pieces as asked for, in no order.
  [[nodiscard]] pieces scattered(std::size_t offset, std::size_t size) const;

 private:
  std::size_t views_;
  std::vector<char> plain_;
  mw::shared_buffer shared_;
  std::span<char> bytes_;
};

}  // namespace mwbench
