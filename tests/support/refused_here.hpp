// What this machine, or the container that the tests run in, refuses: a test that cannot
// run asks, and says so by name.
#pragma once

#include <doctest/doctest.h>
#include <sys/uio.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <string>

#include "io/engine.hpp"

namespace manyworlds::testing {

inline bool say_refused(const char* what, int error) {
  if (error == 0) return false;
  MESSAGE("refused here: " << std::string(what) << " ("
                           << std::string(std::strerror(error)) << ")");
  return true;
}

inline bool io_uring_is_refused_here() {
  return say_refused("io_uring", io_uring_refusal());
}

/// Of a process that may be read if any may: this one.
inline bool reading_is_refused_here() {
  const char there = 1;
  char here = 0;
  const iovec into{&here, 1};
  const iovec from{const_cast<char*>(&there), 1};
  const bool can = ::process_vm_readv(::getpid(), &into, 1, &from, 1, 0) == 1;
  return say_refused("process_vm_readv", can ? 0 : errno);
}

}  // namespace manyworlds::testing
