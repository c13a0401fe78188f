// The processes of an example: its own program again, in another role.
#pragma once

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <optional>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

/// One child. Destroying it kills it and waits for it. Thread: start and destroy it on
/// the main thread, since the kernel tells a child of the death of the *thread* that
/// made it.
class process {
 public:
  struct ending {
    pid_t pid = 0;
    /// Signal that ended it; 0 if it exited, with the status below.
    int signal = 0;
    int status = 0;
  };

  process() = default;
  /// `variable`, if any, is added to the environment.
  explicit process(std::vector<std::string> arguments, std::string variable = {}) {
    arguments.insert(arguments.begin(), {program_invocation_short_name, "--parent",
                                         std::to_string(getpid())});
    std::vector<char*> argv;
    for (std::string& a : arguments) argv.push_back(a.data());
    argv.push_back(nullptr);

    std::vector<char*> environment;
    for (char** each = environ; *each; ++each) environment.push_back(*each);
    if (!variable.empty()) environment.push_back(variable.data());
    environment.push_back(nullptr);

    posix_spawnattr_t how;
    posix_spawnattr_init(&how);
    // The child gets its own process group: the terminal's Ctrl-C goes to the leader
    // alone, which then ends the others.
    posix_spawnattr_setflags(&how, POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGMASK);
    sigset_t none;
    sigemptyset(&none);
    posix_spawnattr_setsigmask(&how, &none);
    const int error = posix_spawn(&pid_, "/proc/self/exe", nullptr, &how, argv.data(),
                                  environment.data());
    posix_spawnattr_destroy(&how);
    if (error) throw std::system_error(error, std::generic_category(), "posix_spawn");
  }
  process(process&& other) noexcept
      : pid_(std::exchange(other.pid_, 0)), is_stopped_(other.is_stopped_) {}
  process& operator=(process&& other) noexcept {
    std::swap(pid_, other.pid_);
    std::swap(is_stopped_, other.is_stopped_);
    return *this;
  }
  ~process() {
    signal(SIGKILL);
    if (pid_ > 0) waitpid(pid_, nullptr, 0);
  }

  /// Returns the pid; 0 once it has ended and was seen to.
  [[nodiscard]] pid_t pid() const noexcept { return pid_; }
  void signal(int number) const noexcept {
    if (pid_ > 0) kill(pid_, number);
  }
  /// Returns how it has ended since the last call, if it has.
  [[nodiscard]] std::optional<ending> take_ending() noexcept {
    int status = 0;
    while (pid_ > 0 && waitpid(pid_, &status, WNOHANG | WUNTRACED | WCONTINUED) == pid_) {
      is_stopped_ = WIFSTOPPED(status);
      if (is_stopped_ || WIFCONTINUED(status)) continue;
      return ending_of(status);
    }
    return std::nullopt;
  }
  /// Waits for its end.
  [[nodiscard]] ending join() noexcept {
    int status = 0;
    if (pid_ <= 0 || waitpid(pid_, &status, 0) != pid_) return {};
    return ending_of(status);
  }
  /// By a signal, as of the last `take_ending`.
  [[nodiscard]] bool is_stopped() const noexcept { return is_stopped_; }

 private:
  [[nodiscard]] ending ending_of(int status) noexcept {
    return {std::exchange(pid_, 0), WIFSIGNALED(status) ? WTERMSIG(status) : 0,
            WIFEXITED(status) ? WEXITSTATUS(status) : 0};
  }

  pid_t pid_ = 0;
  bool is_stopped_ = false;
};

/// Makes a child end with its parent, also when the parent is killed.
inline void end_with(pid_t parent) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  // The parent may have ended before it could be watched.
  if (getppid() != parent) _exit(1);
}
