// Entries of a folder of /proc: what a process has, and may leak.
#pragma once

#include <cstddef>
#include <filesystem>
#include <iterator>

namespace manyworlds::testing {

inline std::size_t entries(const char* folder) {
  using iterator = std::filesystem::directory_iterator;
  return static_cast<std::size_t>(std::distance(iterator(folder), iterator()));
}
inline std::size_t open_descriptors() { return entries("/proc/self/fd"); }

}  // namespace manyworlds::testing
