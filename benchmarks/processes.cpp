#include "processes.hpp"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <spawn.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <fstream>
#include <stdexcept>
#include <system_error>

extern char** environ;

namespace mwbench {

namespace {

[[noreturn]] void fail(const char* what) {
  throw std::system_error(errno, std::generic_category(), what);
}

line tcp_socket() {
  const int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (fd < 0) fail("socket");
  return line(fd);
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
  const line listener = tcp_socket();
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  auto* any = reinterpret_cast<sockaddr*>(&address);
  if (::bind(listener.fd(), any, size) != 0 || ::listen(listener.fd(), 1) != 0 ||
      ::getsockname(listener.fd(), any, &size) != 0) {
    fail("listening on loopback");
  }
  line near = tcp_socket();
  if (::connect(near.fd(), any, size) != 0) fail("connect");
  const int accepted = ::accept4(listener.fd(), nullptr, nullptr, SOCK_CLOEXEC);
  if (accepted < 0) fail("accept");
  line far(accepted);
  send_at_once(near.fd());
  send_at_once(far.fd());
  return {std::move(near), std::move(far)};
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
  // The first of a name counts.
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

void bound_this_process(unsigned seconds, bool is_child) noexcept {
  if (is_child) ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  ::alarm(seconds);
}

void pin_this_thread(int cpu) {
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(static_cast<std::size_t>(cpu), &set);
  const int error = ::pthread_setaffinity_np(::pthread_self(), sizeof set, &set);
  if (error != 0) {
    throw std::system_error(error, std::generic_category(), "pinning to a CPU");
  }
}

usage usage::now() noexcept {
  rusage used{};
  ::getrusage(RUSAGE_SELF, &used);
  const auto seconds = [](const timeval& t) {
    return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_usec) / 1e6;
  };
  return {seconds(used.ru_utime) + seconds(used.ru_stime), used.ru_nvcsw};
}

double own_memory_kib() {
  std::ifstream table("/proc/self/status");
  for (std::string word; table >> word;) {
    double kib = 0;
    if (word == "RssAnon:" && table >> kib) return kib;
  }
  throw std::runtime_error("/proc/self/status tells no RssAnon");
}

}  // namespace mwbench
