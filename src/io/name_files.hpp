// Name files: the machine's files about names, hosts(5) and resolv.conf(5).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "manyworlds/coro/task.hpp"
#include "manyworlds/io/socket_address.hpp"
#include "manyworlds/time.hpp"

namespace manyworlds::inline v0::detail {

/// Looks for one name in the lines of a hosts file, which come in pieces.
class hosts_scan {
 public:
  explicit hosts_scan(std::string_view name, std::uint16_t port)
      : name_(name), port_(port) {}

  void take(std::string_view piece);
  /// Returns the addresses of the name, in the file's order. Called after the last piece.
  [[nodiscard]] std::vector<socket_address> finish();

 private:
  void take_line(std::string_view line);

  std::string_view name_;
  std::uint16_t port_;
  std::string begun_;  ///< a line that has not ended yet
  std::vector<socket_address> found_;
};

/// Reads the addresses that a hosts file has for a name; none where there is no such
/// file. It reads 64 KiB in a turn, since lists of blocked names have megabytes.
/// Lifetime: `name` must outlive it.
[[nodiscard]] task<std::vector<socket_address>> look_in_hosts(std::string path,
                                                              std::string_view name,
                                                              std::uint16_t port);

/// Says how to ask name servers.
struct dns_settings {
  std::vector<socket_address> servers;
  std::vector<std::string> search;
  int dots = 1;  ///< a name with as many dots is first asked for as it is
  duration first_try = std::chrono::seconds(1);
  int tries = 3;  ///< of each server
  bool takes_turns = false;
};

/// Reads a resolv.conf. It skips lines that it does not understand, as other readers do.
[[nodiscard]] dns_settings read_dns_settings(std::string_view text);

/// Loads the settings of this machine. As resolv.conf(5) says, the server on this host is
/// used if the file has none, and the domain of this host's name if there is no search
/// list.
[[nodiscard]] dns_settings load_dns_settings(const std::string& path);

}  // namespace manyworlds::inline v0::detail
