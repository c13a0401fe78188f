// Processes: the other members, started from this very program and gone when it is.
#pragma once

#include <sched.h>
#include <sys/types.h>

#include <manyworlds/io/socket_address.hpp>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace mwbench {

/// One end of a TCP connection between two of our processes: the raw limit is measured on
/// it, and a byte on it starts who waits. Throws std::runtime_error when the other end is
/// gone.
class line {
 public:
  line() noexcept = default;
  explicit line(int fd) noexcept : fd_(fd) {}
  line(line&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  line& operator=(line&& other) noexcept;
  ~line();

  /// The two ends of a new connection over loopback.
  [[nodiscard]] static std::pair<line, line> make();
  /// Throws std::system_error if no socket listens there.
  [[nodiscard]] static line to(const manyworlds::socket_address& address);
  /// The end that `child` gave to this process: its standard input.
  [[nodiscard]] static line to_parent() noexcept { return line(0); }

  [[nodiscard]] int fd() const noexcept { return fd_; }
  void signal();
  void wait();

 private:
  int fd_ = -1;
};

/// Where one process waits for another's connection.
class doorway {
 public:
  /// Port 0 chooses one.
  explicit doorway(const manyworlds::socket_address& address);
  [[nodiscard]] const manyworlds::socket_address& address() const noexcept {
    return address_;
  }
  [[nodiscard]] int fd() const noexcept { return listening_.fd(); }
  [[nodiscard]] line accept();

 private:
  manyworlds::socket_address address_;
  line listening_;
};

/// A process that runs this program with other arguments. Killed and reaped at its end.
class child {
 public:
  child() noexcept = default;
  /// `environment` ("NAME=value") goes before this process's own.
  explicit child(const std::vector<std::string>& arguments,
                 const std::vector<std::string>& environment = {});
  child(child&& other) noexcept
      : pid_(std::exchange(other.pid_, -1)), line_(std::move(other.line_)) {}
  child& operator=(child&& other) noexcept;
  ~child() { end(); }

  [[nodiscard]] pid_t pid() const noexcept { return pid_; }
  [[nodiscard]] class line& line() noexcept { return line_; }
  /// Kills it, unless it has ended, and reaps it.
  void end() noexcept;

 private:
  pid_t pid_ = -1;
  class line line_;
};

/// Gives them two seconds to end by themselves: one that is killed while it leaves its
/// world has died for the others.
void let_end(std::span<const child> children) noexcept;

/// Ends this process after `seconds`, and a child also when the process that measures
/// ends.
void bound_this_process(unsigned seconds, bool is_child) noexcept;

/// How many CPUs this thread may use.
[[nodiscard]] int usable_cpus();

/// Keeps this thread, and what it starts meanwhile, on one of the CPUs that it may use;
/// at its end the thread may use them all again.
class pinned_thread {
 public:
  /// Throws std::runtime_error if this thread may use too few CPUs.
  explicit pinned_thread(int nth);
  pinned_thread(const pinned_thread&) = delete;
  pinned_thread& operator=(const pinned_thread&) = delete;
  ~pinned_thread();

 private:
  cpu_set_t before_;
};

}  // namespace mwbench
