// A worker that a launcher starts, for peers/launch.py: it tells its first instruction
// and SIGTERM by one line each, and links as little as it can.
#include <signal.h>
#include <time.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace {

/// One write a line: those of several workers in one pipe stay whole.
void tell(const char* what) {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  const char* const rank = std::getenv("RANK");
  char line[128];
  const int size = std::snprintf(line, sizeof line, "%s %s %d %lld%09ld\n", what,
                                 rank ? rank : "-1", static_cast<int>(::getpid()),
                                 static_cast<long long>(now.tv_sec), now.tv_nsec);
  [[maybe_unused]] const auto written =
      ::write(STDOUT_FILENO, line, static_cast<std::size_t>(size));
}

}  // namespace

/// obey: ends at SIGTERM. ignore: does not. fail N: exits with 1 in the first N attempts,
/// and then obeys.
int main(int count, char** words) {
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGTERM);
  sigprocmask(SIG_BLOCK, &signals, nullptr);
  const char* const mode = count > 1 ? words[1] : "obey";
  if (std::strcmp(mode, "fail") == 0) {
    const char* const attempt = std::getenv("TORCHELASTIC_RESTART_COUNT");
    tell("try");
    if (attempt && count > 2 && std::atoi(attempt) < std::atoi(words[2])) return 1;
  }
  tell("start");
  for (;;) {
    int number = 0;
    sigwait(&signals, &number);
    tell("term");
    if (std::strcmp(mode, "ignore") != 0) return 0;
  }
}
