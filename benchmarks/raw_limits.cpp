#include "raw_limits.hpp"

#include <sys/socket.h>

#include <cerrno>
#include <stdexcept>
#include <system_error>

namespace mwbench {

namespace {

int flags_of(waiting how) {
  return MSG_NOSIGNAL | (how == waiting::spinning ? MSG_DONTWAIT : 0);
}

/// Returns the bytes moved; 0 if it must be tried again.
std::size_t moved(ssize_t result) {
  if (result > 0) return static_cast<std::size_t>(result);
  if (result == 0) throw std::runtime_error("the other process is gone");
  if (errno == EAGAIN || errno == EINTR) return 0;
  throw std::system_error(errno, std::generic_category(), "raw socket");
}

void send_all(int fd, std::span<const char> data, waiting how) {
  const int flags = flags_of(how);
  while (!data.empty()) {
    data = data.subspan(moved(::send(fd, data.data(), data.size(), flags)));
  }
}

void receive_all(int fd, std::span<char> data, waiting how) {
  const int flags = flags_of(how);
  while (!data.empty()) {
    data = data.subspan(moved(::recv(fd, data.data(), data.size(), flags)));
  }
}

}  // namespace

samples raw_ping(int fd, std::span<char> buffer, int count, waiting how) {
  samples halves;
  for (int i = 0; i < count; ++i) {
    const auto begin = now_ns();
    send_all(fd, buffer, how);
    receive_all(fd, buffer, how);
    halves.add(us_since(begin) / 2);
  }
  return halves;
}

void raw_echo(int fd, std::span<char> buffer, int count, waiting how) {
  for (int i = 0; i < count; ++i) {
    receive_all(fd, buffer, how);
    send_all(fd, buffer, how);
  }
}

double raw_stream(int fd, std::span<char> buffer, int count, waiting how) {
  char taken = 0;
  const auto begin = now_ns();
  for (int i = 0; i < count; ++i) send_all(fd, buffer, how);
  receive_all(fd, {&taken, 1}, how);
  return us_since(begin) / 1e6;
}

void raw_drain(int fd, std::span<char> buffer, int count, waiting how) {
  for (int i = 0; i < count; ++i) receive_all(fd, buffer, how);
  const char taken = 0;
  send_all(fd, {&taken, 1}, how);
}

}  // namespace mwbench
