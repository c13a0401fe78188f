// Submission: turns a request into io_uring's own terms.
#pragma once

#include <liburing.h>
#include <poll.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstdint>

#include "io/poll_budget.hpp"
#include "io/posix_network.hpp"
#include "manyworlds/detail/assertion.hpp"

namespace manyworlds::inline v0::detail {

[[nodiscard]] inline bool needs_writable(const io_request& r) noexcept {
  return r.kind == io_kind::send || r.kind == io_kind::connect;
}

/// Returns the length for a submission entry, which has 32 bits, and newer kernels refuse
/// the highest. What does not fit is left to the next request. (A message header's
/// lengths are as wide as ours.)
[[nodiscard]] inline std::size_t length_of(const iovec& single) noexcept {
  return std::min(single.iov_len, std::size_t{1} << 30);
}

inline void prepare_read_at(io_uring_sqe& sqe, const io_request& r) noexcept {
  MW_ASSERT(r.offset <= INT64_MAX, "the kernel counts a file's bytes with a sign");
  const int fd = static_cast<int>(r.socket);
  if (r.buffer_count == 1) {
    io_uring_prep_read(&sqe, fd, r.buffers->iov_base,
                       static_cast<unsigned>(length_of(*r.buffers)), r.offset);
  } else {
    const auto count = std::min<std::size_t>(r.buffer_count, std::size_t{IOV_MAX});
    io_uring_prep_readv(&sqe, fd, r.buffers, static_cast<unsigned>(count), r.offset);
  }
  // What the kernel has in its cache it would copy while we submit: 100 us for 1 MiB
  // (law 9). A thread of its own does that instead.
  if (bytes_of(r) > poll_budget::small) sqe.flags |= IOSQE_ASYNC;
}

/// Prepares the request itself.
inline void prepare_operation(io_uring_sqe& sqe, io_request& r) noexcept {
  const int fd = static_cast<int>(r.socket);
  switch (r.kind) {
    case io_kind::accept:
      return io_uring_prep_accept(&sqe, fd, nullptr, nullptr,
                                  SOCK_NONBLOCK | SOCK_CLOEXEC);
    case io_kind::connect: {
      const socklen_t length = prepare_address(r);
      return io_uring_prep_connect(&sqe, fd, native_address(r), length);
    }
    case io_kind::receive:
      if (r.buffer_count == 1) {
        return io_uring_prep_recv(&sqe, fd, r.buffers->iov_base, length_of(*r.buffers),
                                  0);
      }
      return io_uring_prep_recvmsg(&sqe, fd, &prepare_message(r), 0);
    case io_kind::send:
      if (r.buffer_count == 1) {
        return io_uring_prep_send(&sqe, fd, r.buffers->iov_base, length_of(*r.buffers),
                                  MSG_NOSIGNAL);
      }
      return io_uring_prep_sendmsg(&sqe, fd, &prepare_message(r), MSG_NOSIGNAL);
    case io_kind::readable:
      return io_uring_prep_poll_add(&sqe, fd, POLLIN);
    case io_kind::read_at:
      return prepare_read_at(sqe, r);
  }
}

/// Prepares a wait until the request can be tried again.
inline void prepare_readiness(io_uring_sqe& sqe, const io_request& r) noexcept {
  io_uring_prep_poll_add(&sqe, static_cast<int>(r.socket),
                         needs_writable(r) ? POLLOUT : POLLIN);
}

/// Returns what a completion means for the request. A poll's result is a set of events.
/// Ours is 0, or ECANCELED if the operation was still to be tried.
[[nodiscard]] inline io_result value_of(const io_request& r, io_result completion,
                                        bool was_readiness) noexcept {
  if (!completion.ok()) return completion;
  if (r.kind == io_kind::readable) return io_result::success(0);
  return was_readiness ? io_result::failure(ECANCELED) : completion;
}

}  // namespace manyworlds::inline v0::detail
