// Submission: how a request reads in io_uring's own terms.
#pragma once

#include <liburing.h>
#include <poll.h>

#include "posix_network.hpp"

namespace manyworlds::inline v0 {

[[nodiscard]] inline bool needs_writable(const io_request& r) noexcept {
  return r.kind == io_kind::send || r.kind == io_kind::connect;
}

/// The request itself.
inline void prepare_operation(io_uring_sqe& sqe, io_request& r) noexcept {
  const int fd = static_cast<int>(r.socket);
  switch (r.kind) {
    case io_kind::accept:
      return io_uring_prep_accept(&sqe, fd, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC);
    case io_kind::connect: {
      const socklen_t length = prepare_address(r);
      return io_uring_prep_connect(&sqe, fd, native_address(r), length);
    }
    case io_kind::receive: return io_uring_prep_recvmsg(&sqe, fd, &prepare_message(r), 0);
    case io_kind::send:
      return io_uring_prep_sendmsg(&sqe, fd, &prepare_message(r), MSG_NOSIGNAL);
    case io_kind::readable: return io_uring_prep_poll_add(&sqe, fd, POLLIN);
  }
}

/// Waiting until the request can be tried again.
inline void prepare_readiness(io_uring_sqe& sqe, const io_request& r) noexcept {
  io_uring_prep_poll_add(&sqe, static_cast<int>(r.socket), needs_writable(r) ? POLLOUT : POLLIN);
}

}  // namespace manyworlds::inline v0
