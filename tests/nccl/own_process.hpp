// A test in a process of its own: what the emulated libraries are asked through the
// environment is read once a process.
#pragma once

#include <doctest/doctest.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "device_fixture.hpp"

namespace manyworlds::testing {

/// This program again, for one of its tests, with a line to it.
class own_process {
 public:
  static constexpr int patience_ms = 120'000;
  static constexpr int line_in_process = 3;

  own_process(std::string test, std::vector<std::string> environment) {
    // A comma would begin another name.
    std::replace(test.begin(), test.end(), ',', '*');
    environment.push_back("MANYWORLDS_TEST_ALONE=1");
    std::vector<char*> variables;
    for (auto& each : environment) variables.push_back(each.data());
    for (char** each = environ; *each != nullptr; ++each) variables.push_back(*each);
    variables.push_back(nullptr);
    int line[2];
    REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, line) == 0);
    posix_spawn_file_actions_t actions;
    ::posix_spawn_file_actions_init(&actions);
    ::posix_spawn_file_actions_adddup2(&actions, line[1], line_in_process);
    char program[] = "/proc/self/exe";
    std::string filter = "--test-case=" + test;
    char quiet[] = "--minimal";
    char* arguments[] = {program, filter.data(), quiet, nullptr};
    const int failure =
        ::posix_spawn(&pid_, program, &actions, nullptr, arguments, variables.data());
    ::posix_spawn_file_actions_destroy(&actions);
    ::close(line[1]);
    line_ = line[0];
    REQUIRE(failure == 0);
  }
  own_process(const own_process&) = delete;
  own_process& operator=(const own_process&) = delete;
  ~own_process() {
    kill();
    ::close(line_);
  }

  [[nodiscard]] pid_t pid() const noexcept { return pid_; }
  [[nodiscard]] int line() const noexcept { return line_; }
  void kill() {
    if (pid_ > 0) ::kill(pid_, SIGKILL);
    (void)status();
  }
  /// Waits for its end.
  [[nodiscard]] bool succeeded() {
    const int ended = status();
    return WIFEXITED(ended) && WEXITSTATUS(ended) == 0;
  }

  /// True in such a process.
  [[nodiscard]] static bool is_here() {
    return std::getenv("MANYWORLDS_TEST_ALONE") != nullptr;
  }

 private:
  int status() {
    if (pid_ <= 0) return status_;
    const int process = static_cast<int>(::syscall(SYS_pidfd_open, pid_, 0));
    pollfd watched{process, POLLIN, 0};
    if (::poll(&watched, 1, patience_ms) != 1) ::kill(pid_, SIGKILL);
    ::close(process);
    ::waitpid(std::exchange(pid_, -1), &status_, 0);
    return status_;
  }

  pid_t pid_ = -1;
  int line_ = -1;
  int status_ = -1;
};

inline void put(int line, const void* data, std::size_t bytes) {
  REQUIRE(::send(line, data, bytes, MSG_NOSIGNAL) == static_cast<ssize_t>(bytes));
}
inline void take(int line, void* data, std::size_t bytes) {
  pollfd watched{line, POLLIN, 0};
  REQUIRE(::poll(&watched, 1, own_process::patience_ms) == 1);
  REQUIRE(::recv(line, data, bytes, MSG_WAITALL) == static_cast<ssize_t>(bytes));
}

/// True in the test's own process, with that environment, where it is to go on; elsewhere
/// it runs there and checks that it succeeded.
inline bool runs_alone(std::vector<std::string> environment) {
  if (own_process::is_here()) return true;
  if (!is_emulated()) {
    MESSAGE("skipped: the GPU cannot be asked to misbehave");
    return false;
  }
  own_process alone(doctest::getContextOptions()->currentTest->m_name,
                    std::move(environment));
  CHECK(alone.succeeded());
  return false;
}

}  // namespace manyworlds::testing
