// Footprint: what this process holds just now, to compare with later.
#pragma once

#include <unistd.h>

#include <cstddef>
#include <fstream>

#include "support/entries.hpp"

namespace manyworlds::testing {

struct footprint {
  std::size_t descriptors = open_descriptors();
  std::size_t threads = entries("/proc/self/task");
  std::size_t resident_bytes = [] {
    std::size_t all = 0;
    std::size_t resident = 0;
    std::ifstream("/proc/self/statm") >> all >> resident;
    return resident * static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  }();
};

}  // namespace manyworlds::testing
