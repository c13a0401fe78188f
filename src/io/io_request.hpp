// I/O request: one operation on a socket or a file, embedded in the object that waits for
// it.
#pragma once

#include <sys/socket.h>
#include <sys/uio.h>

#include <cstddef>
#include <cstdint>

#include "manyworlds/io/socket_address.hpp"

namespace manyworlds::inline v0::detail {

/// A socket of an engine family: a file descriptor, or a number of the simulated network.
/// A file's is a descriptor in each of them.
enum class socket_handle : int { none = -1 };

/// The end of a request or a call: a count (or a handle), or an errno. Only `from_kernel`
/// knows the sign convention of the kernel and liburing.
class io_result {
 public:
  constexpr io_result() noexcept = default;
  [[nodiscard]] static constexpr io_result success(std::int64_t value) noexcept {
    return io_result(value);
  }
  [[nodiscard]] static constexpr io_result failure(int error) noexcept {
    return io_result(-static_cast<std::int64_t>(error));
  }
  [[nodiscard]] static constexpr io_result from_kernel(std::int64_t result) noexcept {
    return io_result(result);
  }

  [[nodiscard]] constexpr bool ok() const noexcept { return value_ >= 0; }
  [[nodiscard]] constexpr std::size_t count() const noexcept {
    return static_cast<std::size_t>(value_);
  }
  [[nodiscard]] constexpr socket_handle handle() const noexcept {
    return static_cast<socket_handle>(value_);
  }
  /// Returns the errno, 0 if ok.
  [[nodiscard]] constexpr int error() const noexcept {
    return value_ < 0 ? static_cast<int>(-value_) : 0;
  }

 private:
  explicit constexpr io_result(std::int64_t value) noexcept : value_(value) {}
  std::int64_t value_ = 0;
};

enum class io_kind : std::uint8_t {
  accept,    ///< result: the new connection's handle
  connect,   ///< to `address`
  receive,   ///< into `buffers`, some bytes; 0 is the end of the stream
  send,      ///< from `buffers`, some bytes
  readable,  ///< until the descriptor (any pollable one) polls readable; result 0
  read_at,   ///< into `buffers` from `offset` of a file, some bytes; 0 is its end
};

/// One operation. Lifetime: the submitter owns it and everything it points to, and keeps
/// both untouched until `ended` was called, also after asking for cancellation (kernel:
/// the operation's own completion is its only end).
class io_request {
 public:
  using function = void (*)(io_request&) noexcept;

  explicit io_request(function f) noexcept : ended(f) {}
  io_request(const io_request&) = delete;
  io_request& operator=(const io_request&) = delete;

  /// Called exactly once for each submission, from inside `engine::poll` or `release`,
  /// and never from inside `submit` or `cancel`; `result` is set. Thread: the engine's.
  function ended;
  io_kind kind = io_kind::readable;
  socket_handle socket = socket_handle::none;
  /// The gather or scatter list of `receive`, `send` and `read_at`. The submitter owns
  /// the array too.
  const iovec* buffers = nullptr;
  std::size_t buffer_count = 0;
  socket_address address;
  /// Where `read_at` begins in the file: below 2^63.
  std::uint64_t offset = 0;
  io_result result;

  /// The engine's own state, from submit to end.
  struct engine_state {
    io_request* next = nullptr;
    io_request* previous = nullptr;
    msghdr message{};
    alignas(8) std::uint8_t native_address[32]{};
    std::uint64_t token = 0;
    unsigned tries = 0;  ///< of a receive that is attempted in each poll
    bool submitted = false;
    bool cancelled = false;
  } engine;
};

}  // namespace manyworlds::inline v0::detail
