// Guarded trees: what a guard knows of the programs of its starter, and ends.
#pragma once

#include <cstddef>
#include <map>
#include <string>
#include <string_view>

namespace manyworlds::inline v0::detail {

/// The longest message of a starter to its guard.
inline constexpr std::size_t longest_guard_message = 8192;

/// The trees that have begun and not ended, by what `guard_connection` tells.
/// Thread: one.
class guarded_trees {
 public:
  /// Takes all messages that have come, without waiting. Returns false when the
  /// connection has ended.
  [[nodiscard]] bool take_messages(int socket);
  /// Kills what carries their variables, and what is in their groups, and removes the
  /// groups. Gives up on what is left after 20 s.
  void end_all();

 private:
  void take(std::string_view message);

  std::map<std::string, std::string> groups_;  ///< by the trees' variables
};

}  // namespace manyworlds::inline v0::detail
