// Settle process: what a program that starts others does before anything else.
#pragma once

#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

namespace manyworlds::inline v0::tools {

/// Opens the standard streams that the caller has closed, lets writes to a pipe that
/// nothing reads fail without ending this process, and lets children be waited for.
inline void settle_process() {
  // A descriptor with the number of a standard stream would get what is printed, and
  // would be closed where a child gets its own streams.
  for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; ++fd) {
    if (::fcntl(fd, F_GETFD) < 0) static_cast<void>(::open("/dev/null", O_RDWR));
  }
  // What was started does not end because no process reads what is said of it.
  ::signal(SIGPIPE, SIG_IGN);
  // Where it is ignored, exit codes of children are lost.
  ::signal(SIGCHLD, SIG_DFL);
}

}  // namespace manyworlds::inline v0::tools
