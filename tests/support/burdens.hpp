// What makes the end of a process late to be seen.
#pragma once

#include <poll.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstddef>
#include <fstream>
#include <string>

namespace manyworlds::testing {

/// A child holds every descriptor of ours, until its standard input, which is ours, ends.
inline bool hold_descriptors_in_child() {
  const pid_t child = ::fork();
  if (child == 0) {
    pollfd released{STDIN_FILENO, 0, 0};
    while (::poll(&released, 1, 60'000) < 0) continue;
    ::_exit(0);
  }
  return child > 0;
}

/// Of the machine, in bytes.
inline std::size_t available_memory() {
  std::ifstream info("/proc/meminfo");
  std::string name;
  std::size_t kilobytes = 0;
  while (info >> name) {
    if (name == "MemAvailable:" && info >> kilobytes) break;
  }
  return kilobytes << 10;
}

/// Memory in small pages, so that tearing it down takes its time; for good. The kernel
/// touches it, where it can: a sanitizer would touch as much of its own for each of our
/// pages.
[[nodiscard]] inline bool touch_memory(std::size_t bytes) {
  constexpr int populate_write = 23;  // MADV_POPULATE_WRITE, Linux 5.14
  void* at = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (at == MAP_FAILED) return false;
  ::madvise(at, bytes, MADV_NOHUGEPAGE);
  if (::madvise(at, bytes, populate_write) == 0) return true;
  for (std::size_t i = 0; i < bytes; i += 4096) static_cast<volatile char*>(at)[i] = 1;
  return true;
}

}  // namespace manyworlds::testing
