#include "sockets.hpp"

#include <poll.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstring>

namespace nccl_emulation {

namespace {

socklen_t address_of(const std::string& name, sockaddr_un& address) {
  address = {};
  address.sun_family = AF_UNIX;
  // A leading zero byte makes the name abstract; see unix(7).
  std::memcpy(address.sun_path + 1, name.data(), name.size());
  return static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
}

descriptor new_socket() {
  return descriptor{::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0)};
}

}  // namespace

void descriptor::close() {
  if (fd_ >= 0) ::close(std::exchange(fd_, -1));
}

std::string fresh_name(const char* purpose) {
  std::uint64_t random = 0;
  [[maybe_unused]] auto got = ::getrandom(&random, sizeof random, 0);
  char text[64];
  std::snprintf(text, sizeof text, "emulated-nccl/%s/%016llx", purpose,
                static_cast<unsigned long long>(random));
  return text;
}

descriptor listen_at(const std::string& name) {
  auto listener = new_socket();
  sockaddr_un address;
  const auto size = address_of(name, address);
  if (::bind(listener.get(), reinterpret_cast<sockaddr*>(&address), size) != 0) return {};
  if (::listen(listener.get(), 1024) != 0) return {};
  return listener;
}

descriptor connect_to(const std::string& name) {
  auto made = new_socket();
  sockaddr_un address;
  const auto size = address_of(name, address);
  if (::connect(made.get(), reinterpret_cast<sockaddr*>(&address), size) != 0) return {};
  return made;
}

outcome wait_ready(int fd, short events, interrupts cut, int timeout_ms) {
  pollfd watched[3];
  watched[0] = {fd, events, 0};
  watched[1] = {cut.first != nullptr ? cut.first->descriptor() : -1, POLLIN, 0};
  watched[2] = {cut.second != nullptr ? cut.second->descriptor() : -1, POLLIN, 0};
  for (;;) {
    const int ready = ::poll(watched, 3, timeout_ms);
    if (ready < 0 && errno == EINTR) continue;
    if (watched[1].revents != 0 || watched[2].revents != 0) return outcome::interrupted;
    return ready == 0 ? outcome::dead : outcome::done;
  }
}

outcome sleep_for(int milliseconds, interrupts cut) {
  if (milliseconds <= 0) return outcome::done;
  return wait_ready(-1, 0, cut, milliseconds) == outcome::interrupted
             ? outcome::interrupted
             : outcome::done;
}

outcome read_all(int fd, void* data, std::size_t size, interrupts cut) {
  auto* to = static_cast<char*>(data);
  while (size > 0) {
    const auto got = ::recv(fd, to, size, MSG_DONTWAIT);
    if (got > 0) {
      to += got;
      size -= static_cast<std::size_t>(got);
    } else if (got < 0 && (errno == EAGAIN || errno == EINTR)) {
      if (wait_ready(fd, POLLIN, cut) == outcome::interrupted)
        return outcome::interrupted;
    } else {
      return outcome::dead;
    }
  }
  return outcome::done;
}

outcome write_all(int fd, const void* data, std::size_t size, interrupts cut) {
  const auto* from = static_cast<const char*>(data);
  while (size > 0) {
    const auto put = ::send(fd, from, size, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (put >= 0) {
      from += put;
      size -= static_cast<std::size_t>(put);
    } else if (errno == EAGAIN || errno == EINTR) {
      if (wait_ready(fd, POLLOUT, cut) == outcome::interrupted)
        return outcome::interrupted;
    } else {
      return outcome::dead;
    }
  }
  return outcome::done;
}

descriptor accept_from(const descriptor& listener, interrupts cut) {
  for (;;) {
    if (wait_ready(listener.get(), POLLIN, cut) == outcome::interrupted) return {};
    const int fd =
        ::accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (fd >= 0) return descriptor{fd};
  }
}

outcome wait_for_abort(interrupts cut) { return wait_ready(-1, 0, cut); }

}  // namespace nccl_emulation
