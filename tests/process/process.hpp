// A real process that obeys orders (member.cpp).
#pragma once

#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <deque>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace manyworlds::process_tests {

using namespace std::chrono_literals;
using clock = std::chrono::steady_clock;

/// A child process with one socket as its standard input and output. Killed when
/// destroyed.
class process {
 public:
  explicit process(std::vector<std::string> arguments) {
    int ends[2];
    if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) {
      throw std::runtime_error("socketpair");
    }
    posix_spawn_file_actions_t actions;
    ::posix_spawn_file_actions_init(&actions);
    ::posix_spawn_file_actions_adddup2(&actions, ends[1], STDIN_FILENO);
    ::posix_spawn_file_actions_adddup2(&actions, ends[1], STDOUT_FILENO);
    arguments.insert(arguments.begin(), MEMBER_PROGRAM);
    std::vector<char*> argv;
    for (std::string& a : arguments) argv.push_back(a.data());
    argv.push_back(nullptr);
    const int error =
        ::posix_spawn(&pid_, MEMBER_PROGRAM, &actions, nullptr, argv.data(), environ);
    ::posix_spawn_file_actions_destroy(&actions);
    ::close(ends[1]);
    channel_ = ends[0];
    if (error != 0) {
      ::close(channel_);
      throw std::runtime_error("cannot start " MEMBER_PROGRAM);
    }
  }
  process(process&& other) noexcept
      : pid_(std::exchange(other.pid_, -1)),
        channel_(std::exchange(other.channel_, -1)),
        partial_(std::move(other.partial_)),
        lines_(std::move(other.lines_)) {}
  process& operator=(process&& other) noexcept {
    std::swap(pid_, other.pid_);
    std::swap(channel_, other.channel_);
    std::swap(partial_, other.partial_);
    std::swap(lines_, other.lines_);
    return *this;
  }
  ~process() {
    if (pid_ > 0) kill();
    if (channel_ >= 0) ::close(channel_);
  }

  [[nodiscard]] pid_t pid() const noexcept { return pid_; }

  void order(const std::string& line) {
    const std::string whole = line + "\n";
    // One that was killed takes no orders, which is its observer's business.
    (void)!::send(channel_, whole.data(), whole.size(), MSG_NOSIGNAL);
  }

  /// The first line that begins so; the others are kept. Throws after `limit`, or when
  /// the process ends.
  std::string expect(const std::string& beginning, clock::duration limit = 20s) {
    return expect_one_of({beginning}, limit);
  }
  /// The same with one of several beginnings.
  std::string expect_one_of(const std::vector<std::string>& beginnings,
                            clock::duration limit = 20s) {
    const auto until = clock::now() + limit;
    for (;;) {
      for (auto line = lines_.begin(); line != lines_.end(); ++line) {
        const bool fits = std::any_of(beginnings.begin(), beginnings.end(),
                                      [&](const auto& b) { return begins(*line, b); });
        if (!fits) continue;
        std::string found = std::move(*line);
        lines_.erase(line);
        return found;
      }
      if (!read_more(until)) {
        std::string told = "expected \"" + beginnings.front() + "\" of process " +
                           std::to_string(pid_) + ", which said:";
        for (const auto& line : lines_) told += "\n  " + line;
        throw std::runtime_error(told);
      }
    }
  }
  /// Whether it has said such a line by now.
  bool has_said(const std::string& beginning) {
    while (read_more(clock::now())) continue;
    for (const auto& line : lines_) {
      if (begins(line, beginning)) return true;
    }
    return false;
  }

  /// Returns when the process is gone.
  void kill() {
    send_kill();
    int status = 0;
    ::waitpid(pid_, &status, 0);
    pid_ = -1;
  }
  /// Only the signal.
  void send_kill() const noexcept { ::kill(pid_, SIGKILL); }
  /// Returns when it has stopped.
  void stop() const {
    ::kill(pid_, SIGSTOP);
    siginfo_t info{};
    ::waitid(P_PID, static_cast<id_t>(pid_), &info, WSTOPPED | WEXITED | WNOWAIT);
  }
  void go_on() const noexcept { ::kill(pid_, SIGCONT); }

  /// Ends its input, which ends a store, or orders it to quit; gives the exit status.
  int end(clock::duration limit = 20s) {
    order("quit");
    ::shutdown(channel_, SHUT_WR);
    const auto until = clock::now() + limit;
    while (read_more(until)) continue;
    if (clock::now() >= until) {
      kill();
      return -1;
    }
    int status = 0;
    ::waitpid(pid_, &status, 0);
    pid_ = -1;
    return status;
  }

 private:
  /// By whole words: "parked idle1" is not the beginning of "parked idle11".
  static bool begins(const std::string& line, const std::string& with) {
    return (line + ' ').starts_with(with.ends_with(' ') ? with : with + ' ');
  }

  /// False at `until`, or at the end of what the process says.
  bool read_more(clock::time_point until) {
    pollfd wanted{channel_, POLLIN, 0};
    const auto left =
        std::chrono::ceil<std::chrono::milliseconds>(until - clock::now()).count();
    if (::poll(&wanted, 1, static_cast<int>(std::max<long>(left, 0))) <= 0) return false;
    char buffer[4096];
    const ssize_t got = ::read(channel_, buffer, sizeof buffer);
    if (got <= 0) return false;
    partial_.append(buffer, static_cast<std::size_t>(got));
    for (std::size_t end; (end = partial_.find('\n')) != std::string::npos;) {
      lines_.push_back(partial_.substr(0, end));
      partial_.erase(0, end + 1);
    }
    return true;
  }

  pid_t pid_ = -1;
  int channel_ = -1;
  std::string partial_;
  std::deque<std::string> lines_;
};

}  // namespace manyworlds::process_tests
