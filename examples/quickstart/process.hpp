// The demo's own processes: this program again, in another role.
#pragma once

#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <string>
#include <system_error>
#include <utility>
#include <vector>

/// One child; destroying it kills it and waits for it. Started, and destroyed, by the
/// main thread: the kernel tells a child of the death of the *thread* that made it.
class process {
 public:
  process() = default;
  explicit process(std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(),
                     {"quickstart", "--parent", std::to_string(getpid())});
    std::vector<char*> argv;
    for (std::string& a : arguments) argv.push_back(a.data());
    argv.push_back(nullptr);

    posix_spawnattr_t how;
    posix_spawnattr_init(&how);
    // A group of its own: the terminal's Ctrl-C is for the leader alone, which then ends
    // the others.
    posix_spawnattr_setflags(&how, POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGMASK);
    sigset_t none;
    sigemptyset(&none);
    posix_spawnattr_setsigmask(&how, &none);
    const int error =
        posix_spawn(&pid_, "/proc/self/exe", nullptr, &how, argv.data(), environ);
    posix_spawnattr_destroy(&how);
    if (error) throw std::system_error(error, std::generic_category(), "posix_spawn");
  }
  process(process&& other) noexcept : pid_(std::exchange(other.pid_, 0)) {}
  process& operator=(process&& other) noexcept {
    std::swap(pid_, other.pid_);
    return *this;
  }
  ~process() {
    signal(SIGKILL);
    if (pid_ > 0) waitpid(pid_, nullptr, 0);
  }

  /// 0 once it has ended and was seen to.
  [[nodiscard]] pid_t pid() const noexcept { return pid_; }
  void signal(int number) const noexcept {
    if (pid_ > 0) kill(pid_, number);
  }
  [[nodiscard]] bool has_ended() noexcept {
    if (pid_ > 0 && waitpid(pid_, nullptr, WNOHANG) == pid_) pid_ = 0;
    return pid_ == 0;
  }

 private:
  pid_t pid_ = 0;
};

/// In a child: it ends with its parent, however that ends.
inline void end_with(pid_t parent) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  // It may have ended before it could be watched.
  if (getppid() != parent) _exit(1);
}
