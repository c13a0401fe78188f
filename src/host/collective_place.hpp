// Collective place: where in its source a member has entered a collective.
#pragma once

#include <cstdint>
#include <string>

#include "host/frame.hpp"
#include "manyworlds/source_position.hpp"

namespace manyworlds::inline v0::detail::host {

/// Carries a position in the sender's source in the fields of one frame: the line, and
/// as many of the last characters of the file's path as fit. Sent only when members are
/// asked what they have entered.
class collective_place {
 public:
  /// Makes an unknown position.
  constexpr collective_place() noexcept = default;
  explicit collective_place(source_position where) noexcept;
  /// Reads a frame that a stranger may have written.
  explicit collective_place(const frame& f) noexcept;

  [[nodiscard]] bool is_known() const noexcept { return line_ != 0; }
  [[nodiscard]] frame to_frame(std::uint64_t number) const noexcept;
  /// Returns " at train/step.cpp:12", or nothing if the position is unknown.
  [[nodiscard]] std::string text() const;

 private:
  static constexpr std::size_t longest_file = 24;

  std::uint32_t line_ = 0;
  std::array<char, longest_file> file_{};
};

}  // namespace manyworlds::inline v0::detail::host
