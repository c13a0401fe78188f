#include "io/port_owner.hpp"

#include <fmt/format.h>

#include <charconv>
#include <filesystem>
#include <fstream>
#include <optional>
#include <sstream>
#include <string_view>
#include <system_error>

namespace manyworlds::inline v0::detail {

namespace {

namespace fs = std::filesystem;

/// A listening socket as /proc/net/tcp has it.
struct listening_socket {
  std::string inode;
  std::string user;
};

bool has_port(std::string_view address, std::uint16_t port) {
  const std::size_t colon = address.rfind(':');
  unsigned found = 0;
  if (colon == std::string_view::npos) return false;
  const char* end = address.data() + address.size();
  std::from_chars(address.data() + colon + 1, end, found, 16);
  return found == port;
}

std::optional<listening_socket> find_listener(const char* table, std::uint16_t port) {
  constexpr std::string_view listening = "0A";
  std::ifstream file(table);
  std::string line;
  std::getline(file, line);  // the names of the columns
  while (std::getline(file, line)) {
    std::istringstream fields(line);
    std::string number, local, remote, state, queues, timer, retransmits, user, timeout,
        inode;
    fields >> number >> local >> remote >> state >> queues >> timer >> retransmits >>
        user >> timeout >> inode;
    if (state == listening && has_port(local, port)) return listening_socket{inode, user};
  }
  return std::nullopt;
}

bool holds(const fs::path& process, const std::string& link) {
  std::error_code error;
  for (fs::directory_iterator each(process / "fd", error), end; !error && each != end;
       each.increment(error)) {
    std::error_code unreadable;
    if (fs::read_symlink(each->path(), unreadable) == link) return true;
  }
  return false;
}

}  // namespace

std::string port_owner(std::uint16_t port) {
  auto found = find_listener("/proc/net/tcp", port);
  if (!found) found = find_listener("/proc/net/tcp6", port);
  if (!found) return {};
  const std::string link = "socket:[" + found->inode + "]";
  std::error_code error;
  for (fs::directory_iterator each("/proc", error), end; !error && each != end;
       each.increment(error)) {
    const std::string pid = each->path().filename().string();
    if (pid.find_first_not_of("0123456789") != std::string::npos) continue;
    if (!holds(each->path(), link)) continue;
    std::string name;
    std::ifstream comm(each->path() / "comm");
    std::getline(comm, name);
    return fmt::format("pid {} ({})", pid, name);
  }
  return "a process of user " + found->user;
}

}  // namespace manyworlds::inline v0::detail
