// Posix network: the machine's sockets, and the system calls that both real engines
// share.
#pragma once

#include <sys/socket.h>

#include "io/engine.hpp"

namespace manyworlds::inline v0::detail {

/// Returns the network of real TCP sockets: non-blocking, CLOEXEC, without delay, and
/// never a SIGPIPE. It has no state, so that a socket given to another reactor does not
/// depend on the engine that it was made with.
[[nodiscard]] network& posix_network() noexcept;

/// Fills the engine's message header from the request's buffers, for `sendmsg` and
/// `recvmsg`.
msghdr& prepare_message(io_request& request) noexcept;

/// Writes the request's address into the engine's own storage. Returns its length.
socklen_t prepare_address(io_request& request) noexcept;
[[nodiscard]] sockaddr* native_address(io_request& request) noexcept;

/// Tries a request once without blocking. EAGAIN means that it is not ready. A file is
/// always ready: `read_at` blocks until its disk has answered (see `file_reads`).
[[nodiscard]] io_result attempt(io_request& request) noexcept;

}  // namespace manyworlds::inline v0::detail
