#include "processes.hpp"

#include <linux/tcp.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <stdexcept>
#include <string>
#include <system_error>

extern char** environ;

namespace mwbench {

namespace {

[[noreturn]] void fail(const char* what) {
  throw std::system_error(errno, std::generic_category(), what);
}

struct native_address {
  explicit native_address(const manyworlds::socket_address& of)
      : size(of.to_native(&storage)) {}
  [[nodiscard]] sockaddr* any() noexcept { return reinterpret_cast<sockaddr*>(&storage); }

  sockaddr_storage storage{};
  socklen_t size;
};

line tcp_socket(const native_address& at) {
  const int fd = ::socket(at.storage.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (fd < 0) fail("socket");
  return line(fd);
}

cpu_set_t cpus_of_this_thread() {
  cpu_set_t set;
  if (::sched_getaffinity(0, sizeof set, &set) != 0) fail("asking for usable CPUs");
  return set;
}

void send_at_once(int fd) {
  const int on = 1;
  ::setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
}

}  // namespace

line& line::operator=(line&& other) noexcept {
  std::swap(fd_, other.fd_);
  return *this;
}

line::~line() {
  if (fd_ >= 0) ::close(fd_);
}

std::pair<line, line> line::make() {
  doorway door(manyworlds::socket_address::loopback(0));
  line near = line::to(door.address());
  return {std::move(near), door.accept()};
}

line line::to(const manyworlds::socket_address& address) {
  native_address there(address);
  line made = tcp_socket(there);
  if (::connect(made.fd(), there.any(), there.size) != 0) fail("connect");
  send_at_once(made.fd());
  return made;
}

doorway::doorway(const manyworlds::socket_address& address) {
  native_address here(address);
  listening_ = tcp_socket(here);
  here.size = sizeof here.storage;
  if (::bind(listening_.fd(), here.any(), address.to_native(&here.storage)) != 0 ||
      ::listen(listening_.fd(), SOMAXCONN) != 0 ||
      ::getsockname(listening_.fd(), here.any(), &here.size) != 0) {
    fail("listening for another process");
  }
  address_ = *manyworlds::socket_address::from_native(here.any(), here.size);
}

line doorway::accept() {
  const int accepted = ::accept4(listening_.fd(), nullptr, nullptr, SOCK_CLOEXEC);
  if (accepted < 0) fail("accept");
  send_at_once(accepted);
  return line(accepted);
}

void line::signal() {
  if (::send(fd_, "", 1, MSG_NOSIGNAL) != 1) fail("signalling another process");
}

void line::wait() {
  char byte = 0;
  if (::recv(fd_, &byte, 1, 0) != 1) {
    throw std::runtime_error("another process of this benchmark is gone");
  }
}

child::child(const std::vector<std::string>& arguments,
             const std::vector<std::string>& environment) {
  auto [near, far] = line::make();
  std::vector<char*> argv;
  argv.push_back(program_invocation_short_name);
  std::vector<std::string> copies = arguments;
  for (std::string& a : copies) argv.push_back(a.data());
  argv.push_back(nullptr);
  // The first mapping of a name counts.
  std::vector<std::string> added = environment;
  std::vector<char*> variables;
  for (std::string& a : added) variables.push_back(a.data());
  for (char** each = environ; *each; ++each) variables.push_back(*each);
  variables.push_back(nullptr);

  posix_spawn_file_actions_t actions;
  ::posix_spawn_file_actions_init(&actions);
  ::posix_spawn_file_actions_adddup2(&actions, far.fd(), 0);
  const int error = ::posix_spawn(&pid_, "/proc/self/exe", &actions, nullptr, argv.data(),
                                  variables.data());
  ::posix_spawn_file_actions_destroy(&actions);
  if (error != 0) {
    throw std::system_error(error, std::generic_category(), "starting another process");
  }
  line_ = std::move(near);
}

child& child::operator=(child&& other) noexcept {
  end();
  pid_ = std::exchange(other.pid_, -1);
  line_ = std::move(other.line_);
  return *this;
}

void child::end() noexcept {
  if (pid_ <= 0) return;
  ::kill(pid_, SIGKILL);
  while (::waitpid(pid_, nullptr, 0) < 0 && errno == EINTR) {}
  pid_ = -1;
}

void let_end(std::span<const child> children) noexcept {
  const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(2);
  for (const child& each : children) {
    const int process = static_cast<int>(::syscall(SYS_pidfd_open, each.pid(), 0));
    if (process < 0) return;
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(
        until - std::chrono::steady_clock::now());
    pollfd ended{process, POLLIN, 0};
    ::poll(&ended, 1, std::max(static_cast<int>(left.count()), 0));
    ::close(process);
  }
}

void bound_this_process(unsigned seconds, bool is_child) noexcept {
  if (is_child) ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  ::alarm(seconds);
}

int usable_cpus() {
  const cpu_set_t usable = cpus_of_this_thread();
  return CPU_COUNT(&usable);
}

pinned_thread::pinned_thread(int nth) : before_(cpus_of_this_thread()) {
  if (nth >= CPU_COUNT(&before_)) {
    throw std::runtime_error("pinning takes " + std::to_string(nth + 1) +
                             " CPUs, and this process may use " +
                             std::to_string(CPU_COUNT(&before_)));
  }
  std::size_t cpu = 0;
  for (int before = 0;; ++cpu) {
    if (CPU_ISSET(cpu, &before_) && before++ == nth) break;
  }
  cpu_set_t one;
  CPU_ZERO(&one);
  CPU_SET(cpu, &one);
  if (::sched_setaffinity(0, sizeof one, &one) != 0) fail("pinning to a CPU");
}

pinned_thread::~pinned_thread() { ::sched_setaffinity(0, sizeof before_, &before_); }

}  // namespace mwbench
