// Abandoned groups: control groups that starters have left which were killed.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace manyworlds::inline v0::detail {

/// Names a control group of this process's. The name tells a later start which process
/// has made the group: its number, its pid namespace, and when it was started.
[[nodiscard]] std::string name_of_group(std::string_view key);

/// Marks a group the processes of which live on deliberately.
void mark_as_left(const std::string& group) noexcept;

/// A group that was emptied.
struct abandoned_group {
  std::string folder;
  pid_t maker = 0;
  std::size_t killed = 0;  ///< processes

  /// Returns a line that says what was done.
  [[nodiscard]] std::string text() const;
};

/// Removes the groups in a folder that this user's dead starters have made, kills what is
/// in them, and returns those in which something was. A group is let be if its maker may
/// live, as one of another pid namespace may, and as long as a mark says that its
/// processes live on. It waits up to 1 s for the ends of what it kills.
[[nodiscard]] std::vector<abandoned_group> end_abandoned_groups(
    const std::string& folder);

}  // namespace manyworlds::inline v0::detail
