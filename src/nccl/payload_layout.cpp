#include "nccl/payload_layout.hpp"

#include <string>

namespace manyworlds::inline v0::detail::nccl {

void payload_layout::add(std::uint64_t bytes) {
  if (!runs_.empty() && runs_.back().bytes == bytes && runs_.back().pieces < UINT32_MAX) {
    ++runs_.back().pieces;
    return;
  }
  if (runs_.size() == most_runs) {
    throw std::invalid_argument("more than " + std::to_string(most_runs) +
                                " runs of views of equal size in one device message: "
                                "send it as several");
  }
  runs_.push_back({bytes, 1});
}

void payload_layout::check_pieces() const {
  std::uint64_t pieces = 0;
  for (const run& r : runs_) pieces += r.pieces;
  if (pieces > most_pieces) {
    throw std::invalid_argument(
        "more than a million views in one device message: send it "
        "as several");
  }
}

payload_layout payload_layout::read(wire_reader& in, std::uint64_t total) {
  payload_layout layout;
  const std::size_t count = in.get<std::uint16_t>();
  if (count > most_runs) throw wire_error("a layout of too many runs");
  layout.runs_.resize(count);
  std::uint64_t left = total;
  std::uint64_t pieces = 0;
  for (run& r : layout.runs_) {
    r.bytes = in.get<std::uint64_t>();
    r.pieces = in.get<std::uint32_t>();
    // Divided, as the product may overflow.
    if (r.bytes == 0 || r.pieces == 0 || r.bytes > left / r.pieces) {
      throw wire_error("a layout that is not the message's");
    }
    left -= r.bytes * r.pieces;
    pieces += r.pieces;
  }
  if (pieces > most_pieces) throw wire_error("a layout of too many pieces");
  if (left != 0) throw wire_error("a layout that is not the message's");
  return layout;
}

void layout_cursor::advance(std::uint64_t bytes) noexcept {
  left_ -= bytes;
  if (left_ > 0) return;
  if (++piece_ == layout_.runs()[run_].pieces) {
    piece_ = 0;
    ++run_;
  }
  left_ = run_ < layout_.runs().size() ? layout_.runs()[run_].bytes : 0;
}

}  // namespace manyworlds::inline v0::detail::nccl
