// What a member process gives up of its rights.
#pragma once

#include <grp.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <stdexcept>
#include <string>
#include <utility>

#include "support/refused_calls.hpp"

namespace manyworlds::process_tests {

/// To this thread, and those it starts.
inline void refuse_call(const std::string& name) {
  constexpr std::pair<const char*, long> calls[] = {
      {"process_vm_readv", SYS_process_vm_readv},
      {"memfd_create", SYS_memfd_create},
      {"io_uring_setup", SYS_io_uring_setup},
  };
  for (const auto& [each, number] : calls) {
    if (name == each) return testing::refuse(number, EPERM);
  }
  throw std::invalid_argument("no call of ours: " + name);
}

/// Another user, whom the rights of root do not help; as readable as others of that user.
inline void become(uid_t user) {
  if (::setgroups(0, nullptr) != 0 || ::setresgid(user, user, user) != 0 ||
      ::setresuid(user, user, user) != 0) {
    throw std::runtime_error("cannot become user " + std::to_string(user));
  }
  ::prctl(PR_SET_DUMPABLE, 1);
  // It went with the change of user.
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
}

/// From now on only root may read our memory or trace us.
inline void hide() { ::prctl(PR_SET_DUMPABLE, 0); }

}  // namespace manyworlds::process_tests
