// Engine: what turns I/O requests into completions. Three exist: io_uring, epoll and
// simulated.
#pragma once

#include <memory>
#include <optional>
#include <string_view>

#include "manyworlds/coro/timer_queue.hpp"
#include "manyworlds/io/io_request.hpp"

namespace manyworlds::inline v0 {

/// The sockets of one host. Calls do not block; handles may be used by every engine of
/// the host, on any thread, one request of a kind at a time (at most one send and one
/// receive in flight per stream).
class network {
 public:
  network() = default;
  network(const network&) = delete;
  network& operator=(const network&) = delete;
  virtual ~network() = default;

  /// A listening socket; port 0 chooses one. Result: handle, or errno (EADDRINUSE, EMFILE
  /// ...).
  [[nodiscard]] virtual io_result listen(const socket_address& address, int backlog) = 0;
  /// A stream socket to connect to `peer` with a `connect` request. Result: handle or
  /// errno.
  [[nodiscard]] virtual io_result open_stream(const socket_address& peer) = 0;
  /// No request may be in flight on it.
  virtual void close(socket_handle socket) noexcept = 0;
  /// The peer reads the end of the stream after what was sent.
  virtual void shut_down_sending(socket_handle socket) noexcept = 0;
  /// Sends one byte if that goes at once. Nobody is told if it does not: the stream is
  /// full of such bytes, or over.
  virtual void send_byte(socket_handle socket) noexcept = 0;
  [[nodiscard]] virtual socket_address local_address(socket_handle socket) const = 0;
  [[nodiscard]] virtual socket_address peer_address(socket_handle socket) const = 0;
};

/// Runs requests for one thread. All calls but `wake` on that thread.
class engine {
 public:
  engine() = default;
  engine(const engine&) = delete;
  engine& operator=(const engine&) = delete;
  virtual ~engine() = default;

  [[nodiscard]] virtual std::string_view name() const noexcept = 0;
  [[nodiscard]] virtual network& sockets() noexcept = 0;
  [[nodiscard]] virtual time_point now() const noexcept = 0;

  /// Starts a request. Failing to start is an end like any other (`result` holds the
  /// errno).
  virtual void submit(io_request& request) noexcept = 0;
  /// Asks a submitted request to end early; it ends exactly once all the same, with
  /// ECANCELED or with what it had achieved (also bytes). Asking twice, or after the end,
  /// is harmless only while the request has not ended.
  virtual void cancel(io_request& request) noexcept = 0;
  /// Submits what is queued and ends what has completed, a bounded number. True if
  /// anything ended.
  virtual bool poll() noexcept = 0;
  /// Sleeps until something completes, `wake` is called, or `until`. Returns early at
  /// will.
  virtual void wait(std::optional<time_point> until) noexcept = 0;
  /// Ends the current or next `wait`. From any thread.
  virtual void wake() noexcept = 0;

  /// A descriptor that polls readable when `poll` has something to do or `wake` was
  /// called; for embedding in a foreign loop, which asks for it before the first request.
  /// -1 if there is none (simulated).
  [[nodiscard]] virtual int descriptor() noexcept = 0;
  /// Called before a foreign loop waits on `descriptor`: submits what is queued and
  /// clears old notices. True if something has completed already, so that the loop must
  /// not wait.
  [[nodiscard]] virtual bool prepare_foreign_wait() noexcept = 0;
};

enum class engine_kind : unsigned char { automatic, io_uring, epoll };

/// What was chosen, and why not io_uring if it was asked for or preferred: a sentence for
/// the log with the errno and its usual causes, empty when there is nothing to say.
struct engine_choice {
  std::unique_ptr<class engine> engine;
  std::string remark;
};

/// The engine of this machine for the calling thread or a later one (the ring is enabled
/// by the first thread that polls). `automatic` falls back to epoll where io_uring is
/// refused, also for want of memory that rings may use (ENOMEM); `io_uring` throws
/// std::system_error there. Out of descriptors (EMFILE, ENFILE) always throws.
[[nodiscard]] engine_choice make_engine(engine_kind kind);

/// Whether io_uring may be used here: 0, or the errno that refuses it.
[[nodiscard]] int io_uring_refusal() noexcept;

}  // namespace manyworlds::inline v0
