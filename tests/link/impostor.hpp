// A process that has the number of another that has died.
#pragma once

#include <linux/sched.h>
#include <signal.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <unistd.h>

#include <cstdint>

namespace manyworlds::link_tests {

/// A copy of this process with that number, which does nothing until it is killed; -1 and
/// errno if numbers cannot be chosen here.
inline pid_t fork_as(pid_t number) {
  ::clone_args how{};
  how.exit_signal = SIGCHLD;
  how.set_tid = reinterpret_cast<std::uintptr_t>(&number);
  how.set_tid_size = 1;
  const auto made = static_cast<pid_t>(::syscall(SYS_clone3, &how, sizeof how));
  if (made == 0) {
    ::alarm(60);
    for (;;) ::pause();
  }
  return made;
}

}  // namespace manyworlds::link_tests
