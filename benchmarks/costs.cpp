#include "costs.hpp"

#include <fmt/format.h>
#include <linux/tcp.h>
#include <netinet/in.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include <charconv>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <stdexcept>
#include <string>

namespace mwbench {

namespace {

/// Allowance for descriptors that a process has open anyway, and for a while when it
/// forms worlds.
constexpr std::size_t open_anyway = 256;

/// A mapping's first line: "55d0-55e0 rw-s 00000000 00:01 1234 /memfd:name".
bool begins_mapping(const std::string& line, bool& is_shared) {
  const std::size_t rights = line.find(' ');
  if (rights == std::string::npos || line.find('-') > rights) return false;
  if (line.size() < rights + 5) return false;
  is_shared = line[rights + 4] == 's';
  return true;
}

}  // namespace

usage usage::now() noexcept {
  rusage used{};
  ::getrusage(RUSAGE_SELF, &used);
  const auto seconds = [](const timeval& t) {
    return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_usec) / 1e6;
  };
  return {seconds(used.ru_utime) + seconds(used.ru_stime), used.ru_nvcsw};
}

memory_use memory_use::now() {
  std::ifstream table("/proc/self/smaps");
  if (!table) throw std::runtime_error("/proc/self/smaps cannot be read");
  memory_use total;
  bool is_shared = false;
  for (std::string line; std::getline(table, line);) {
    if (begins_mapping(line, is_shared)) continue;
    std::istringstream words(line);
    std::string what;
    double kib = 0;
    if (!(words >> what >> kib)) continue;
    if (is_shared) {
      if (what == "Pss:") total.shared += kib;
    } else if (what == "Private_Dirty:") {
      total.own += kib;
    }
  }
  return total;
}

std::uint64_t segments_sent() {
  std::uint64_t sum = 0;
  for (const auto& each : std::filesystem::directory_iterator("/proc/self/fd")) {
    const std::string name = each.path().filename();
    int fd = -1;
    std::from_chars(name.data(), name.data() + name.size(), fd);
    tcp_info info{};
    socklen_t size = sizeof info;
    if (::getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &size) != 0) continue;
    sum += info.tcpi_data_segs_out;
  }
  return sum;
}

void allow_open_files(std::size_t count, bool says_so) {
  const rlim_t wanted = count + open_anyway;
  rlimit limit{};
  ::getrlimit(RLIMIT_NOFILE, &limit);
  if (limit.rlim_cur >= wanted) return;
  if (limit.rlim_max < wanted) {
    throw std::runtime_error(fmt::format(
        "this needs {} open files, the limit is {}: raise it (ulimit -n), or ask for "
        "less",
        wanted, limit.rlim_max));
  }
  if (says_so) {
    fmt::print(stderr, "mwbench: the limit of open files is raised from {} to {}\n",
               limit.rlim_cur, wanted);
  }
  limit.rlim_cur = wanted;
  ::setrlimit(RLIMIT_NOFILE, &limit);
}

}  // namespace mwbench
