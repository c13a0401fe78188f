// Payload layout: the sizes of a device message's pieces, as its peer needs to know them.
#pragma once

#include <cstdint>
#include <stdexcept>
#include <vector>

#include "link/wire.hpp"
#include "manyworlds/memory/gather_list.hpp"

namespace manyworlds::inline v0::detail::nccl {

/// Equal neighbours are one run: a list of paged KV blocks is one or two of them. Both
/// sides cut a message at the ends of either's pieces, since NCCL moves one piece into
/// one.
class payload_layout {
 public:
  struct run {
    std::uint64_t bytes = 0;
    std::uint32_t pieces = 0;
    friend bool operator==(const run&, const run&) noexcept = default;
  };
  /// A description and the largest head travel in one chunk of 8 KiB.
  static constexpr std::size_t most_runs = 336;
  /// Each piece is a call of NCCL's on the launching thread.
  static constexpr std::uint64_t most_pieces = std::uint64_t{1} << 20;

  payload_layout() = default;

  /// Throws std::invalid_argument for more than `most_runs` or `most_pieces`.
  template <class View>
  explicit payload_layout(const basic_view_list<View>& views) {
    for (std::size_t i = 0; i < views.size(); ++i) {
      if (!views[i].empty()) add(views[i].size_bytes());
    }
    check_pieces();
  }

  [[nodiscard]] bool is_one_piece() const noexcept {
    return runs_.size() == 1 && runs_[0].pieces == 1;
  }
  [[nodiscard]] const std::vector<run>& runs() const noexcept { return runs_; }

  void write(wire_writer& out) const {
    out.put(static_cast<std::uint16_t>(runs_.size()));
    for (const run& r : runs_) out.put(r.bytes).put(r.pieces);
  }
  /// Reads the layout of a message of `total` bytes. Errors: wire_error for any other.
  [[nodiscard]] static payload_layout read(wire_reader& in, std::uint64_t total);

 private:
  void add(std::uint64_t bytes);
  void check_pieces() const;

  std::vector<run> runs_;
};

/// Walks through the pieces of a layout.
class layout_cursor {
 public:
  explicit layout_cursor(const payload_layout& layout) noexcept
      : layout_(layout), left_(layout.runs().empty() ? 0 : layout.runs().front().bytes) {}

  /// Returns what is left of the present piece; 0 at the end.
  [[nodiscard]] std::uint64_t left() const noexcept { return left_; }
  /// Precondition: `bytes` is at most `left()`.
  void advance(std::uint64_t bytes) noexcept;

 private:
  const payload_layout& layout_;
  std::size_t run_ = 0;
  std::uint32_t piece_ = 0;
  std::uint64_t left_;
};

}  // namespace manyworlds::inline v0::detail::nccl
