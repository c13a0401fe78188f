#include "io/stream.hpp"

#include <fcntl.h>
#include <sys/socket.h>

#include <cerrno>
#include <string>
#include <system_error>
#include <utility>

#include "io/port_owner.hpp"
#include "io/posix_network.hpp"
#include "manyworlds/detail/assertion.hpp"

namespace manyworlds::inline v0::detail {

socket::socket(socket&& other) noexcept
    : net_(other.net_), handle_(std::exchange(other.handle_, socket_handle::none)) {}

socket& socket::operator=(socket&& other) noexcept {
  if (this != &other) {
    close();
    net_ = other.net_;
    handle_ = std::exchange(other.handle_, socket_handle::none);
  }
  return *this;
}

void socket::close() noexcept {
  if (is_open()) net_->close(std::exchange(handle_, socket_handle::none));
}

// --------------------------------------------------------------------------------------

io_awaiter::io_awaiter(reactor* r, io_kind kind, socket_handle socket) noexcept
    : io_request([](io_request& request) noexcept {
        MW_ASSERT(static_cast<io_awaiter&>(request).waiter_,
                  "a request ends once (law 1)");
        // The waiter may destroy this awaiter as soon as it is resumed, so the resumption
        // comes last.
        std::exchange(static_cast<io_awaiter&>(request).waiter_, nullptr)->resume();
      }),
      reactor_(r) {
  if (!r) result = io_result::failure(EBADF);
  this->kind = kind;
  this->socket = socket;
}

io_awaiter::io_awaiter(const io_awaiter& other) noexcept
    : io_request(other.ended), reactor_(other.reactor_), single_(other.single_) {
  kind = other.kind;
  socket = other.socket;
  buffers = other.buffers == &other.single_ ? &single_ : other.buffers;
  buffer_count = other.buffer_count;
  address = other.address;
  offset = other.offset;
  result = other.result;
}

io_awaiter& io_awaiter::with_buffer(void* data, std::size_t size) noexcept {
  single_ = {data, size};
  return with_buffers(&single_, 1);
}

io_awaiter& io_awaiter::with_buffers(const iovec* list, std::size_t count) noexcept {
  buffers = list;
  buffer_count = count;
  return *this;
}

io_awaiter& io_awaiter::with_address(const socket_address& to) noexcept {
  address = to;
  return *this;
}

io_awaiter& io_awaiter::with_offset(std::uint64_t from) noexcept {
  offset = from;
  return *this;
}

void io_awaiter::await_start(continuation& k) noexcept {
  MW_ASSERT(reactor_ && !waiter_, "a request is in flight once at a time");
  waiter_ = &k;
  reactor_->io().submit(*this);
}

bool io_awaiter::await_cancel() noexcept {
  // Without a waiter the request has ended and its resumption is on the way.
  if (waiter_) {
    cancelled_ = true;
    reactor_->io().cancel(*this);
  }
  return false;
}

bool io_awaiter::await_must_resume() const noexcept {
  return !(cancelled_ && result.error() == ECANCELED);
}

// --------------------------------------------------------------------------------------

task<io_result> stream::connect(reactor& r, socket_address address, stream& into) {
  network& net = r.sockets();
  const io_result opened = net.open_stream(address);
  if (!opened.ok()) co_return opened;
  socket s(net, opened.handle());
  io_awaiter request(r, io_kind::connect, s.handle());
  request.with_address(address);
  const io_result connected = co_await request;
  if (!connected.ok()) co_return connected;
  // A dial to a port of the ephemeral range without a listener can meet itself: the
  // kernel may choose that very port for our side, and TCP then opens from both ends at
  // once.
  if (net.local_address(s.handle()) == net.peer_address(s.handle())) {
    co_return io_result::failure(ECONNREFUSED);
  }
  into = stream(r, std::move(s));
  co_return connected;
}

io_awaiter stream::receive_some(std::span<std::byte> buffer) noexcept {
  io_awaiter a(reactor_if_open(), io_kind::receive, socket_.handle());
  a.with_buffer(buffer.data(), buffer.size());
  return a;
}

io_awaiter stream::send_some(std::span<const std::byte> buffer) noexcept {
  io_awaiter a(reactor_if_open(), io_kind::send, socket_.handle());
  a.with_buffer(const_cast<std::byte*>(buffer.data()), buffer.size());
  return a;
}

task<io_result> stream::receive_exactly(std::span<std::byte> buffer) {
  std::size_t received = 0;
  while (received < buffer.size()) {
    const io_result some = co_await receive_some(buffer.subspan(received));
    if (!some.ok()) co_return some;
    if (some.count() == 0) break;
    received += some.count();
  }
  co_return io_result::success(static_cast<std::int64_t>(received));
}

task<io_result> stream::send_all(std::span<const std::byte> buffer) {
  std::size_t sent = 0;
  while (sent < buffer.size()) {
    const io_result some = co_await send_some(buffer.subspan(sent));
    if (!some.ok()) co_return some;
    sent += some.count();
  }
  co_return io_result::success(static_cast<std::int64_t>(sent));
}

bool stream::has_ended() const noexcept {
  return !is_open() || socket_.net().has_ended(socket_.handle());
}

void stream::shut_down_sending() noexcept {
  if (is_open()) socket_.net().shut_down_sending(socket_.handle());
}

socket_address stream::peer_address() const {
  return is_open() ? socket_.net().peer_address(socket_.handle()) : socket_address{};
}

// --------------------------------------------------------------------------------------

listener::listener(reactor& r, const socket_address& address) : reactor_(&r) {
  constexpr int backlog = 4096;
  const io_result opened = r.sockets().listen(address, backlog);
  if (!opened.ok()) {
    std::string what = "cannot listen on " + address.text();
    if (opened.error() == EADDRINUSE && &r.sockets() == &posix_network()) {
      const std::string owner = port_owner(address.port());
      if (!owner.empty()) what += ", where " + owner + " listens";
    }
    throw std::system_error(opened.error(), std::generic_category(), what);
  }
  socket_ = socket(r.sockets(), opened.handle());
}

listener listener::from_descriptor(reactor& r, int fd) {
  socket taken(posix_network(), static_cast<socket_handle>(fd));
  int listens = 0;
  socklen_t size = sizeof listens;
  int error = 0;
  if (::getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &listens, &size) != 0) {
    error = errno;
  } else if (listens == 0 || !taken.net().local_address(taken.handle()).is_valid()) {
    error = EINVAL;
  } else if (::fcntl(fd, F_SETFD, FD_CLOEXEC) != 0 ||
             ::fcntl(fd, F_SETFL, ::fcntl(fd, F_GETFL) | O_NONBLOCK) != 0) {
    error = errno;
  }
  if (error != 0) {
    if (error == EBADF) (void)taken.release();
    throw std::system_error(
        error, std::generic_category(),
        "descriptor " + std::to_string(fd) + " is no TCP socket that listens");
  }
  return listener(r, std::move(taken));
}

socket_address listener::address() const {
  return is_open() ? socket_.net().local_address(socket_.handle()) : socket_address{};
}

io_awaiter listener::accept() noexcept {
  return io_awaiter(is_open() ? reactor_ : nullptr, io_kind::accept, socket_.handle());
}

}  // namespace manyworlds::inline v0::detail
