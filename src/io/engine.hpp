// Engine: turns I/O requests into completions. There are three: io_uring, epoll and
// simulated.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string_view>

#include "io/io_request.hpp"
#include "manyworlds/io/environment.hpp"
#include "manyworlds/time.hpp"

namespace manyworlds::inline v0::detail {

/// Offers the sockets of one host. Calls do not block. Every engine of the host may use
/// a handle, on any thread. A handle has one request of a kind at a time: a stream has
/// at most one send and one receive in flight.
class network {
 public:
  network() = default;
  network(const network&) = delete;
  network& operator=(const network&) = delete;
  virtual ~network() = default;

  /// Opens a listening socket; port 0 chooses one. Result: handle, or errno (EADDRINUSE,
  /// EMFILE ...).
  [[nodiscard]] virtual io_result listen(const socket_address& address, int backlog) = 0;
  /// Opens a stream socket, which a `connect` request connects to `peer`. Result: handle
  /// or errno.
  [[nodiscard]] virtual io_result open_stream(const socket_address& peer) = 0;
  /// Closes a socket. Precondition: no request is in flight on it.
  virtual void close(socket_handle socket) noexcept = 0;
  /// Ends the outgoing stream: the peer reads its end after what was sent.
  virtual void shut_down_sending(socket_handle socket) noexcept = 0;
  /// Sends one byte if that is possible at once. Reports nothing otherwise: the stream is
  /// full of such bytes, or over.
  virtual void send_byte(socket_handle socket) noexcept = 0;
  /// Says whether a connected stream is known to be over: its end or a reset has come,
  /// and no byte before it is unread.
  [[nodiscard]] virtual bool has_ended(socket_handle socket) noexcept = 0;
  [[nodiscard]] virtual socket_address local_address(socket_handle socket) const = 0;
  [[nodiscard]] virtual socket_address peer_address(socket_handle socket) const = 0;
};

/// The thread that polls an engine next: the one that says so, or another one.
enum class next_poller : std::uint8_t { this_thread, another_thread };

/// Runs requests for one thread at a time. Thread: all calls but `wake` on that one.
class engine {
 public:
  engine() = default;
  engine(const engine&) = delete;
  engine& operator=(const engine&) = delete;
  virtual ~engine() = default;

  [[nodiscard]] virtual std::string_view name() const noexcept = 0;
  [[nodiscard]] virtual network& sockets() noexcept = 0;
  [[nodiscard]] virtual time_point now() const noexcept = 0;

  /// Starts a request. A failure to start is an end like any other (`result` holds the
  /// errno).
  virtual void submit(io_request& request) noexcept = 0;
  /// Asks a submitted request to end early. It still ends exactly once, with ECANCELED or
  /// with what it had achieved (also bytes). Asking twice is harmless. Precondition: the
  /// request has not ended.
  virtual void cancel(io_request& request) noexcept = 0;
  /// Submits what is queued and ends a bounded number of completed requests. Returns true
  /// if anything ended.
  virtual bool poll() noexcept = 0;
  /// Sleeps until something completes, `wake` is called, or `until`. It may return early.
  virtual void wait(std::optional<time_point> until) noexcept = 0;
  /// Ends the current or next `wait`. Thread: any.
  virtual void wake() noexcept = 0;

  /// Called when its thread polls no longer, from inside a turn. Requests may end, and
  /// others wait until `take` was called.
  virtual void release() noexcept {}
  /// Gives it to a thread, after `release` or before the first poll. Errors:
  /// std::system_error without the means; std::logic_error if it still belongs to another
  /// thread, which has not released it.
  virtual void take([[maybe_unused]] next_poller by) {}

  /// Returns a descriptor that polls readable when `poll` has something to do or `wake`
  /// was called. A foreign loop asks for it before the first request. -1 if there is none
  /// (simulated).
  [[nodiscard]] virtual int descriptor() noexcept = 0;
  /// Called before a foreign loop waits on `descriptor`. Submits what is queued and
  /// clears old notices. Returns true if something has completed already, so that the
  /// loop must not wait.
  [[nodiscard]] virtual bool prepare_foreign_wait() noexcept = 0;
};

/// The chosen engine. `warning` says why it is not io_uring if that was asked for or
/// preferred: a sentence for the log with the errno and its usual causes. It is empty
/// when there is nothing to say.
struct engine_choice {
  std::unique_ptr<class engine> engine;
  std::string warning;
};

/// Makes the engine of this machine for the calling thread or a later one (the first
/// thread that polls enables the ring). `automatic` falls back to epoll where io_uring is
/// refused, also when rings get no memory (ENOMEM).
///
/// Errors: where io_uring is refused, `io_uring` throws std::system_error. Out of
/// descriptors (EMFILE, ENFILE) always throws it.
[[nodiscard]] engine_choice make_engine(engine_kind kind);

/// Returns 0 if io_uring may be used here, else the errno that refuses it.
[[nodiscard]] int io_uring_refusal() noexcept;

}  // namespace manyworlds::inline v0::detail
