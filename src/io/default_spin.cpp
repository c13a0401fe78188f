#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <exception>
#include <fstream>
#include <string>

#include "io/reactor.hpp"

namespace manyworlds::inline v0::detail {

namespace {

constexpr double unlimited = 1e9;

double cpus_by_affinity() noexcept {
  cpu_set_t set;
  CPU_ZERO(&set);
  // The call fails if there are more CPUs than the set can hold: they are enough then.
  return ::sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : unlimited;
}

/// Reads one control group's "max 100000" or "50000 100000" (microseconds of CPU per
/// period).
double cpus_by_quota_file(const std::string& path) {
  std::ifstream file(path);
  double quota = 0;
  double period = 0;
  return file >> quota >> period && quota > 0 && period > 0 ? quota / period : unlimited;
}

/// Returns the process's control group path under version 2 ("0::/a/b"), or empty.
std::string own_group() {
  std::ifstream file("/proc/self/cgroup");
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with("0::")) return line.substr(3);
  }
  return {};
}

/// Returns the tightest quota of the process's group and those above it. Inside a
/// container the root of what is mounted is the container's own group.
double cpus_by_quota() {
  double least = unlimited;
  std::string group = own_group();
  for (;;) {
    least = std::min(least, cpus_by_quota_file("/sys/fs/cgroup" + group + "/cpu.max"));
    const std::size_t slash = group.rfind('/');
    if (slash == std::string::npos) return least;
    group.resize(slash);
  }
}

/// Returns the quota; if memory runs out while reading, there is no limit.
double quota_or_none() noexcept {
  try {
    return cpus_by_quota();
  } catch (const std::exception&) {
    return unlimited;
  }
}

}  // namespace

duration default_spin() noexcept {
  const bool has_two = ::sysconf(_SC_NPROCESSORS_ONLN) >= 2 && quota_or_none() >= 2;
  return has_two ? reactor_options{}.spin : duration::zero();
}

bool has_cpus_for_helpers() noexcept {
  return cpus_by_affinity() >= 2 && quota_or_none() >= 2;
}

}  // namespace manyworlds::inline v0::detail
