// Stream: a connected socket that coroutines read and write. Listener: a socket that they
// accept connections on.
#pragma once

#include <array>
#include <cstddef>
#include <span>

#include "io/reactor.hpp"
#include "manyworlds/coro/continuation.hpp"
#include "manyworlds/coro/task.hpp"

namespace manyworlds::inline v0::detail {

/// Owns a socket of a network. Lifetime: close it only with no request in flight.
class socket {
 public:
  socket() noexcept = default;
  socket(network& net, socket_handle handle) noexcept : net_(&net), handle_(handle) {}
  socket(socket&& other) noexcept;
  socket& operator=(socket&& other) noexcept;
  ~socket() { close(); }

  void close() noexcept;
  [[nodiscard]] bool is_open() const noexcept { return handle_ != socket_handle::none; }
  [[nodiscard]] socket_handle handle() const noexcept { return handle_; }
  [[nodiscard]] network& net() const noexcept { return *net_; }
  /// Gives the handle away.
  [[nodiscard]] socket_handle release() noexcept {
    return std::exchange(handle_, socket_handle::none);
  }

 private:
  network* net_ = nullptr;
  socket_handle handle_ = socket_handle::none;
};

/// Awaits one request on a reactor. Precondition: the awaiting task has that reactor as
/// its home. A cancellation asks the engine and waits for the request's own end, so that
/// its buffers are free afterwards. Bytes that had moved are delivered, not lost.
class io_awaiter : private io_request {
 public:
  io_awaiter(reactor& r, io_kind what, socket_handle on) noexcept
      : io_awaiter(&r, what, on) {}
  /// A null reactor, as of a stream that is not open, makes it fail with EBADF at once.
  io_awaiter(reactor* r, io_kind kind, socket_handle socket) noexcept;
  /// Copies the description of the request. Precondition: it has not started (the awaiter
  /// itself never moves once started).
  io_awaiter(const io_awaiter& other) noexcept;
  io_awaiter& operator=(const io_awaiter&) = delete;
  ~io_awaiter() = default;

  io_awaiter& with_buffer(void* data, std::size_t size) noexcept;
  io_awaiter& with_buffers(const iovec* buffers, std::size_t count) noexcept;
  io_awaiter& with_address(const socket_address& address) noexcept;
  io_awaiter& with_offset(std::uint64_t from) noexcept;

  bool await_ready() const noexcept { return !reactor_; }
  void await_start(continuation& k) noexcept;
  bool await_cancel() noexcept;
  bool await_must_resume() const noexcept;
  io_result await_resume() noexcept { return result; }

 private:
  reactor* reactor_;
  iovec single_{};
  continuation* waiter_ = nullptr;
  bool cancelled_ = false;
};

/// A connected stream socket on one reactor, with at most one send and one receive at a
/// time. Errors: one that is not open (default-constructed, moved from, closed) gives
/// EBADF.
class stream {
 public:
  stream() noexcept = default;
  stream(reactor& r, socket s) noexcept : reactor_(&r), socket_(std::move(s)) {}

  /// Connects to `address`. Result: 0 or errno. `into` is open afterwards only if it
  /// succeeded.
  [[nodiscard]] static task<io_result> connect(reactor& r, socket_address address,
                                               stream& into);

  [[nodiscard]] bool is_open() const noexcept { return socket_.is_open(); }
  /// Says whether the stream is known to be over. Nothing that is sent to one that is
  /// reaches the peer.
  [[nodiscard]] bool has_ended() const noexcept;
  [[nodiscard]] io_awaiter receive_some(std::span<std::byte> buffer) noexcept;
  [[nodiscard]] io_awaiter send_some(std::span<const std::byte> buffer) noexcept;
  /// Fills the buffer. Result: count() == size, less at the end of the stream, or the
  /// errno.
  [[nodiscard]] task<io_result> receive_exactly(std::span<std::byte> buffer);
  /// Sends the whole buffer, or gives the errno.
  [[nodiscard]] task<io_result> send_all(std::span<const std::byte> buffer);
  void shut_down_sending() noexcept;
  void close() noexcept { socket_.close(); }
  /// Returns the peer's address; an invalid one if the stream is not open.
  [[nodiscard]] socket_address peer_address() const;

  /// Gives the socket away, for use on another reactor of the same host.
  [[nodiscard]] socket release() noexcept { return std::move(socket_); }

 private:
  [[nodiscard]] reactor* reactor_if_open() const noexcept {
    return is_open() ? reactor_ : nullptr;
  }

  reactor* reactor_ = nullptr;
  socket socket_;
};

/// A listening socket on one reactor.
class listener {
 public:
  listener() noexcept = default;
  /// Listens on `address`. Throws std::system_error naming it (port in use, and by which
  /// process of this machine; no permission, descriptors exhausted).
  listener(reactor& r, const socket_address& address);
  /// Takes over a descriptor that another program has made, and which listens already.
  /// It is closed at the end, or if this throws. Throws std::system_error naming it if it
  /// is no listening TCP socket.
  [[nodiscard]] static listener from_descriptor(reactor& r, int fd);

  [[nodiscard]] bool is_open() const noexcept { return socket_.is_open(); }
  /// Returns the address with the port that was chosen; an invalid one if it is not open.
  [[nodiscard]] socket_address address() const;
  /// Awaits the next connection. Result: a handle or errno (EMFILE: the caller waits a
  /// little and goes on).
  [[nodiscard]] io_awaiter accept() noexcept;
  void close() noexcept { socket_.close(); }
  /// Returns the descriptor, to be handed on to another program. Connections that wait to
  /// be accepted go with it.
  [[nodiscard]] int descriptor() const noexcept {
    return static_cast<int>(socket_.handle());
  }

 private:
  listener(reactor& r, socket s) noexcept : reactor_(&r), socket_(std::move(s)) {}

  reactor* reactor_ = nullptr;
  socket socket_;
};

}  // namespace manyworlds::inline v0::detail
