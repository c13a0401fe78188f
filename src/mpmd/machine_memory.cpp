#include "mpmd/machine_memory.hpp"

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <filesystem>
#include <fstream>
#include <optional>
#include <string_view>
#include <system_error>

namespace manyworlds::inline v0::detail {

namespace {

namespace fs = std::filesystem;

/// Returns the number at the front; nothing for "max", which is no limit.
std::optional<std::uint64_t> leading_number(std::string_view text) {
  const std::size_t first = text.find_first_not_of(" \t");
  if (first == std::string_view::npos) return std::nullopt;
  std::uint64_t number = 0;
  const auto parsed =
      std::from_chars(text.data() + first, text.data() + text.size(), number);
  return parsed.ec == std::errc() ? std::optional(number) : std::nullopt;
}

std::uint64_t memory_of_machine(const fs::path& root) {
  constexpr std::string_view wanted = "MemTotal:";
  std::ifstream facts(root / "proc/meminfo");
  for (std::string line; std::getline(facts, line);) {
    if (!line.starts_with(wanted)) continue;
    const auto kibibytes = leading_number(std::string_view(line).substr(wanted.size()));
    if (kibibytes) return *kibibytes * 1024;
  }
  throw std::system_error(ENODATA, std::generic_category(),
                          "/proc/meminfo tells no memory");
}

/// Returns the least limit of a group and those that it is in. Where a container sees the
/// path that its host knows, only the topmost folder is there.
std::uint64_t least_limit(const fs::path& top, std::string_view group,
                          const char* file_name) {
  std::uint64_t least = UINT64_MAX;
  for (fs::path inside = fs::path(group).relative_path();;
       inside = inside.parent_path()) {
    std::ifstream file(top / inside / file_name);
    std::string line;
    if (std::getline(file, line))
      least = std::min(least, leading_number(line).value_or(UINT64_MAX));
    if (inside.empty()) return least;
  }
}

/// Says whether `name` is in a list with commas.
bool is_listed(std::string_view list, std::string_view name) {
  for (std::size_t at = 0; at <= list.size();) {
    const std::size_t end = std::min(list.find(',', at), list.size());
    if (list.substr(at, end - at) == name) return true;
    at = end + 1;
  }
  return false;
}

}  // namespace

std::uint64_t machine_memory(const std::string& root) {
  std::uint64_t memory = memory_of_machine(root);
  const fs::path groups = fs::path(root) / "sys/fs/cgroup";
  std::ifstream own(fs::path(root) / "proc/self/cgroup");
  // A line is "4:memory:/path", and of version 2 "0::/path".
  for (std::string line; std::getline(own, line);) {
    const std::size_t first = line.find(':');
    const std::size_t second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos) continue;
    const std::string_view all = line;
    const std::string_view controllers = all.substr(first + 1, second - first - 1);
    const std::string_view path = all.substr(second + 1);
    if (controllers.empty()) {
      memory = std::min(memory, least_limit(groups, path, "memory.max"));
    } else if (is_listed(controllers, "memory")) {
      memory =
          std::min(memory, least_limit(groups / "memory", path, "memory.limit_in_bytes"));
    }
  }
  return memory;
}

}  // namespace manyworlds::inline v0::detail
