#include "link/local_socket.hpp"

#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "io/stream.hpp"
#include "manyworlds/detail/assertion.hpp"

namespace manyworlds::inline v0::detail::shm {

namespace {

socklen_t abstract_address(std::string_view name, sockaddr_un& into) noexcept {
  into = {};
  into.sun_family = AF_UNIX;
  // The first byte stays zero, which means the abstract namespace.
  const std::size_t size = std::min(name.size(), sizeof into.sun_path - 1);
  std::memcpy(into.sun_path + 1, name.data(), size);
  return static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + size);
}

task<io_result> readable(reactor& r, int fd) {
  io_awaiter ready(r, io_kind::readable, static_cast<socket_handle>(fd));
  co_return co_await ready;
}

union control_block {
  cmsghdr align;
  char bytes[CMSG_SPACE(sizeof(int) * most_passed)];
};

}  // namespace

io_result receive_packet(int fd, std::span<std::byte> buffer,
                         passed_descriptors& passed) noexcept {
  MW_ASSERT(!buffer.empty(), "a packet is received into memory");
  iovec place{buffer.data(), buffer.size()};
  control_block control{};
  msghdr message{};
  message.msg_iov = &place;
  message.msg_iovlen = 1;
  message.msg_control = control.bytes;
  message.msg_controllen = sizeof control.bytes;
  const ssize_t got = ::recvmsg(fd, &message, MSG_CMSG_CLOEXEC | MSG_DONTWAIT);
  if (got < 0) return io_result::failure(errno);
  std::size_t count = 0;
  for (cmsghdr* c = CMSG_FIRSTHDR(&message); c; c = CMSG_NXTHDR(&message, c)) {
    if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS) continue;
    const std::size_t here = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (std::size_t i = 0; i < here; ++i) {
      int received = -1;
      std::memcpy(&received, CMSG_DATA(c) + i * sizeof(int), sizeof received);
      unique_descriptor owned(received);
      if (count < passed.size()) passed[count++] = std::move(owned);
    }
  }
  if (message.msg_flags & (MSG_TRUNC | MSG_CTRUNC)) return io_result::failure(EBADMSG);
  return io_result::success(got);
}

int send_packet(int fd, std::span<const std::byte> packet,
                std::span<const int> descriptors) noexcept {
  iovec place{const_cast<std::byte*>(packet.data()), packet.size()};
  control_block control{};
  msghdr message{};
  message.msg_iov = &place;
  message.msg_iovlen = 1;
  MW_ASSERT(descriptors.size() <= most_passed, "a packet carries a few descriptors");
  const std::size_t size = sizeof(int) * std::min(descriptors.size(), most_passed);
  if (size > 0) {
    message.msg_control = control.bytes;
    message.msg_controllen = CMSG_SPACE(size);
    cmsghdr* c = CMSG_FIRSTHDR(&message);
    c->cmsg_level = SOL_SOCKET;
    c->cmsg_type = SCM_RIGHTS;
    c->cmsg_len = CMSG_LEN(size);
    std::memcpy(CMSG_DATA(c), descriptors.data(), size);
  }
  ssize_t sent = -1;
  do {
    sent = ::sendmsg(fd, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
  } while (sent < 0 && errno == EINTR);
  return sent < 0 ? errno : 0;
}

int local_socket::open() noexcept {
  MW_ASSERT(!fd_, "a local socket is opened once");
  fd_ = unique_descriptor(
      ::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  return fd_ ? 0 : errno;
}

int local_socket::listen(std::string_view name) noexcept {
  if (const int error = open()) return error;
  sockaddr_un address;
  const socklen_t size = abstract_address(name, address);
  if (::bind(fd_.get(), reinterpret_cast<sockaddr*>(&address), size) == 0 &&
      ::listen(fd_.get(), 64) == 0) {
    return 0;
  }
  const int error = errno;
  fd_ = {};
  return error;
}

int local_socket::connect(std::string_view name) noexcept {
  if (const int error = open()) return error;
  sockaddr_un address;
  const socklen_t size = abstract_address(name, address);
  if (::connect(fd_.get(), reinterpret_cast<sockaddr*>(&address), size) == 0) return 0;
  const int error = errno;
  fd_ = {};
  return error;
}

task<io_result> local_socket::accept(reactor& r, local_socket& into) {
  for (;;) {
    const int fd = ::accept4(fd_.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC);
    if (fd >= 0) {
      into.fd_ = unique_descriptor(fd);
      co_return io_result::success(0);
    }
    if (errno == EINTR || errno == ECONNABORTED) continue;
    if (errno != EAGAIN) co_return io_result::failure(errno);
    const io_result waited = co_await readable(r, fd_.get());
    if (!waited.ok()) co_return waited;
  }
}

task<io_result> local_socket::receive(reactor& r, std::span<std::byte> buffer,
                                      passed_descriptors& passed) {
  for (;;) {
    const io_result got = receive_packet(fd_.get(), buffer, passed);
    if (got.ok() || (got.error() != EAGAIN && got.error() != EINTR)) co_return got;
    const io_result waited = co_await readable(r, fd_.get());
    if (!waited.ok()) co_return waited;
  }
}

pid_t local_socket::peer_pid() const noexcept {
  ucred peer{};
  socklen_t size = sizeof peer;
  if (::getsockopt(fd_.get(), SOL_SOCKET, SO_PEERCRED, &peer, &size) != 0) return 0;
  return peer.pid;
}

}  // namespace manyworlds::inline v0::detail::shm
