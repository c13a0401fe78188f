// Collective place: where in its source a member has entered a collective, as it travels.
#pragma once

#include <cstdint>
#include <string>

#include "frame.hpp"
#include "manyworlds/source_position.hpp"

namespace manyworlds::inline v0::host {

/// A position in the sender's source, in the fields of one frame: the line, and of the
/// file's path as many of its last characters as fit, which name one among the program's
/// own. Sent only when members are asked what they have entered.
class collective_place {
 public:
  /// Not known.
  constexpr collective_place() noexcept = default;
  explicit collective_place(source_position where) noexcept;
  /// Of a frame that a stranger may have written.
  explicit collective_place(const frame& f) noexcept;

  [[nodiscard]] bool is_known() const noexcept { return line_ != 0; }
  [[nodiscard]] frame to_frame(std::uint64_t number) const noexcept;
  /// " at train/step.cpp:12", or nothing where it is not known.
  [[nodiscard]] std::string text() const;

 private:
  static constexpr std::size_t longest_file = 24;

  std::uint32_t line_ = 0;
  std::array<char, longest_file> file_{};
};

}  // namespace manyworlds::inline v0::host
