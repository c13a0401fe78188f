// A child process of a test, which runs a function and exits with its value.
#pragma once

#include <signal.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <unistd.h>

#include <utility>

namespace manyworlds_tests {

/// Is killed at the test's end, and ends itself after 30 s.
template <class Body>
class child {
 public:
  explicit child(Body body) : pid_(::fork()) {
    if (pid_ != 0) return;
    ::alarm(30);
    ::_exit(body());
  }
  child(const child&) = delete;
  child& operator=(const child&) = delete;
  ~child() {
    if (pid_ <= 0) return;
    ::kill(pid_, SIGKILL);
    static_cast<void>(status());
  }
  /// Waits for its end; 0 if it ended well.
  int status() {
    int status = 0;
    if (pid_ > 0) ::waitpid(std::exchange(pid_, 0), &status, 0);
    return status;
  }
  void signal(int s) const { ::kill(pid_, s); }

 private:
  pid_t pid_;
};

}  // namespace manyworlds_tests
