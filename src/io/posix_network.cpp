#include "io/posix_network.hpp"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstdint>

#include "manyworlds/detail/assertion.hpp"

namespace manyworlds::inline v0::detail {

namespace {

// Bounds how long the kernel retransmits to a host that is gone. It also ends connections
// to a receiver that keeps its window shut, so it must be far above any time that a live
// process stays away from its sockets. Liveness, not this, finds dead peers quickly.
constexpr unsigned user_timeout_ms = 120'000;

// How much a socket takes that it cannot send yet: what comes behind waits for all of it.
// By default that is 4 MiB. Over a wire of 1 ms with a stream of 64 MiB a message of 8
// bytes then takes 7 to 16 ms, and 4 to 5 with this; the stream is as fast. With 128 KiB
// one over veth took 1.5 times as long.
constexpr unsigned most_unsent = 512 * 1024;

int descriptor_of(socket_handle s) noexcept { return static_cast<int>(s); }

template <class T>
void set_option(int fd, int level, int name, T value) noexcept {
  ::setsockopt(fd, level, name, &value, sizeof value);
}

template <class GetName>
socket_address address_from(GetName get_name, int fd) noexcept {
  sockaddr_storage storage{};
  socklen_t length = sizeof storage;
  auto* native = reinterpret_cast<sockaddr*>(&storage);
  if (get_name(fd, native, &length) != 0) return {};
  return socket_address::from_native(native, length).value_or(socket_address{});
}

// Accepted sockets inherit what is set here from their listener (Linux).
io_result open_socket(const socket_address& address) noexcept {
  if (!address.is_valid()) return io_result::failure(EAFNOSUPPORT);
  const int fd = ::socket(address.is_ipv6() ? AF_INET6 : AF_INET,
                          SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  if (fd < 0) return io_result::failure(errno);
  set_option(fd, IPPROTO_TCP, TCP_NODELAY, 1);
  set_option(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, user_timeout_ms);
  set_option(fd, IPPROTO_TCP, TCP_NOTSENT_LOWAT, most_unsent);
  return io_result::success(fd);
}

class posix_sockets final : public network {
 public:
  io_result listen(const socket_address& address, int backlog) override {
    const io_result opened = open_socket(address);
    if (!opened.ok()) return opened;
    const int fd = descriptor_of(opened.handle());
    set_option(fd, SOL_SOCKET, SO_REUSEADDR, 1);
    sockaddr_storage storage{};
    const socklen_t length = address.to_native(&storage);
    if (::bind(fd, reinterpret_cast<sockaddr*>(&storage), length) != 0 ||
        ::listen(fd, backlog) != 0) {
      const int error = errno;
      ::close(fd);
      return io_result::failure(error);
    }
    return opened;
  }

  io_result open_stream(const socket_address& peer) override { return open_socket(peer); }

  void close(socket_handle s) noexcept override { ::close(descriptor_of(s)); }

  void shut_down_sending(socket_handle s) noexcept override {
    ::shutdown(descriptor_of(s), SHUT_WR);
  }

  void send_byte(socket_handle s) noexcept override {
    const char one = 1;
    [[maybe_unused]] const ssize_t sent =
        ::send(descriptor_of(s), &one, 1, MSG_DONTWAIT | MSG_NOSIGNAL);
  }

  bool has_ended(socket_handle s) noexcept override {
    char next = 0;
    const ssize_t left =
        ::recv(descriptor_of(s), &next, sizeof next, MSG_PEEK | MSG_DONTWAIT);
    return left == 0 || (left < 0 && errno != EAGAIN && errno != EINTR);
  }

  socket_address local_address(socket_handle s) const override {
    return address_from(::getsockname, descriptor_of(s));
  }
  socket_address peer_address(socket_handle s) const override {
    return address_from(::getpeername, descriptor_of(s));
  }
};

io_result result_of(ssize_t value) noexcept {
  return value < 0 ? io_result::failure(errno) : io_result::success(value);
}

// A second connect call tells the outcome of a connection attempt: 0, EISCONN, the error
// it met, or EALREADY while it is under way. Unlike SO_ERROR it is not fooled by a
// spurious wake-up.
io_result attempt_connect(io_request& r) noexcept {
  const socklen_t length = prepare_address(r);
  if (::connect(descriptor_of(r.socket), native_address(r), length) == 0 ||
      errno == EISCONN) {
    return io_result::success(0);
  }
  if (errno == EINPROGRESS || errno == EALREADY) return io_result::failure(EAGAIN);
  // A local socket's full backlog would read as "wait until writable", which it is
  // already.
  return io_result::failure(errno == EAGAIN ? EADDRNOTAVAIL : errno);
}

io_result attempt_readable(io_request& r) noexcept {
  pollfd p{descriptor_of(r.socket), POLLIN, 0};
  const int ready = ::poll(&p, 1, 0);
  if (ready < 0) return io_result::failure(errno);
  if (ready == 0) return io_result::failure(EAGAIN);
  return (p.revents & POLLNVAL) ? io_result::failure(EBADF) : io_result::success(0);
}

io_result attempt_read_at(io_request& r) noexcept {
  MW_ASSERT(r.offset <= INT64_MAX, "the kernel counts a file's bytes with a sign");
  const auto count =
      static_cast<int>(std::min<std::size_t>(r.buffer_count, std::size_t{IOV_MAX}));
  return result_of(
      ::preadv(descriptor_of(r.socket), r.buffers, count, static_cast<off_t>(r.offset)));
}

io_result attempt_once(io_request& r) noexcept {
  const int fd = descriptor_of(r.socket);
  switch (r.kind) {
    case io_kind::accept:
      return result_of(::accept4(fd, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
    case io_kind::connect:
      return attempt_connect(r);
    case io_kind::receive:
      if (r.buffer_count == 1)
        return result_of(
            ::recv(fd, r.buffers->iov_base, r.buffers->iov_len, MSG_DONTWAIT));
      return result_of(::recvmsg(fd, &prepare_message(r), MSG_DONTWAIT));
    case io_kind::send:
      if (r.buffer_count == 1)
        return result_of(::send(fd, r.buffers->iov_base, r.buffers->iov_len,
                                MSG_DONTWAIT | MSG_NOSIGNAL));
      return result_of(::sendmsg(fd, &prepare_message(r), MSG_DONTWAIT | MSG_NOSIGNAL));
    case io_kind::readable:
      return attempt_readable(r);
    case io_kind::read_at:
      return attempt_read_at(r);
  }
  return io_result::failure(EINVAL);
}

}  // namespace

network& posix_network() noexcept {
  static posix_sockets machine;
  return machine;
}

msghdr& prepare_message(io_request& request) noexcept {
  msghdr& m = request.engine.message;
  m = {};
  m.msg_iov = const_cast<iovec*>(request.buffers);
  m.msg_iovlen = std::min<std::size_t>(request.buffer_count, IOV_MAX);
  return m;
}

socklen_t prepare_address(io_request& request) noexcept {
  static_assert(sizeof(sockaddr_in6) <= sizeof request.engine.native_address);
  return request.address.to_native(request.engine.native_address);
}

sockaddr* native_address(io_request& request) noexcept {
  return reinterpret_cast<sockaddr*>(request.engine.native_address);
}

io_result attempt(io_request& request) noexcept {
  for (;;) {
    const io_result r = attempt_once(request);
    // A connection that its client gave up while it was queued is no failure of ours:
    // take the next one.
    const bool given_up = request.kind == io_kind::accept && r.error() == ECONNABORTED;
    if (r.error() != EINTR && !given_up) return r;
  }
}

}  // namespace manyworlds::inline v0::detail
