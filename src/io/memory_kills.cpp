#include "io/memory_kills.hpp"

#include <unistd.h>

#include <fstream>

namespace manyworlds::inline v0::detail {

namespace {

/// Returns the file that counts for this process. Mounts are looked for where all
/// distributions and container engines have them.
std::string counting_file() {
  std::ifstream groups("/proc/self/cgroup");
  for (std::string line; std::getline(groups, line);) {
    const std::size_t name = line.find(':');
    const std::size_t path = line.find(':', name + 1);
    if (path == std::string::npos) continue;
    const std::string controllers = line.substr(name + 1, path - name - 1);
    const std::string own = line.substr(path + 1);
    for (const std::string& group : {own, std::string()}) {
      std::string file;
      if (controllers == "memory") {
        file = "/sys/fs/cgroup/memory" + group + "/memory.oom_control";
      } else if (controllers.empty()) {
        file = "/sys/fs/cgroup" + group + "/memory.events";
      }
      if (!file.empty() && ::access(file.c_str(), R_OK) == 0) return file;
    }
  }
  return "/proc/vmstat";
}

}  // namespace

memory_kills::memory_kills() : path_(counting_file()), explained_(count()) {}

std::uint64_t memory_kills::count() const {
  std::ifstream file(path_);
  std::string name;
  for (std::uint64_t value = 0; file >> name >> value;) {
    if (name == "oom_kill") return value;
  }
  return 0;
}

bool memory_kills::explain_one() {
  const std::lock_guard lock(mutex_);
  if (count() <= explained_) return false;
  ++explained_;
  return true;
}

}  // namespace manyworlds::inline v0::detail
