#include "manyworlds/detail/config.hpp"

#if MANYWORLDS_HAS_IO_URING

#include <sys/mman.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <stdexcept>
#include <system_error>

#include "raw_uring.hpp"

namespace mwbench {

namespace {

// Linux 6.10 has these, the header of liburing 2.3 does not.
constexpr unsigned receive_bundle = 1U << 4;       // IORING_RECVSEND_BUNDLE
constexpr unsigned has_receive_bundle = 1U << 14;  // IORING_FEAT_RECVSEND_BUNDLE

constexpr unsigned entries = 64;
// As many zero-copy sends are read from at a time at most, the newest one included.
constexpr int most_notices = 4;

[[noreturn]] void refuse_call(const char* what, int error) {
  throw std::system_error(error, std::generic_category(), what);
}

/// Returns -EAGAIN where a call would block, as a completion does.
int result_of(ssize_t value) { return value < 0 ? -errno : static_cast<int>(value); }

}  // namespace

const char* name_of(sending how) noexcept {
  constexpr const char* names[] = {"send()",      "tried, ring", "ring",
                                   "write fixed", "zero-copy",   "zero-copy fixed"};
  return names[static_cast<int>(how)];
}

const char* name_of(receiving how) noexcept {
  constexpr const char* names[] = {"recv()", "tried, ring", "ring", "multishot",
                                   "bundle"};
  return names[static_cast<int>(how)];
}

raw_ring::raw_ring() {
  const int error =
      -io_uring_queue_init(entries, &ring_,
                           IORING_SETUP_SINGLE_ISSUER | IORING_SETUP_DEFER_TASKRUN |
                               IORING_SETUP_TASKRUN_FLAG | IORING_SETUP_SUBMIT_ALL);
  if (error != 0) refuse_call("io_uring", error);
}

io_uring_sqe& raw_ring::entry() {
  io_uring_sqe* const sqe = io_uring_get_sqe(&ring_);
  if (!sqe) throw std::logic_error("a ring of 64 entries is full");
  return *sqe;
}

io_uring_cqe raw_ring::next(waiting how) {
  if (io_uring_sq_ready(&ring_) > 0) {
    how == waiting::blocking ? io_uring_submit_and_wait(&ring_, 1)
                             : io_uring_submit_and_get_events(&ring_);
  }
  io_uring_cqe* cqe = nullptr;
  while (io_uring_peek_cqe(&ring_, &cqe) != 0) {
    if (how == waiting::blocking) io_uring_submit_and_wait(&ring_, 1);
  }
  const io_uring_cqe copy = *cqe;
  io_uring_cqe_seen(&ring_, cqe);
  return copy;
}

raw_sender::raw_sender(int fd, sending how, std::span<char> memory) : fd_(fd), how_(how) {
  if (how != sending::call) ring_.emplace();
  if (how != sending::write_fixed && how != sending::zero_copy_fixed) return;
  const iovec all{memory.data(), memory.size()};
  const int error = -io_uring_register_buffers(ring_->get(), &all, 1);
  if (error != 0) refuse_call("registering memory with io_uring", error);
}

void raw_sender::send_all(std::span<const char> data) {
  while (!data.empty()) {
    const int sent = send_some(data);
    if (sent > 0) {
      data = data.subspan(static_cast<std::size_t>(sent));
    } else if (sent != -EINTR) {
      refuse_call(name_of(how_), -sent);
    }
  }
}

int raw_sender::send_some(std::span<const char> data) {
  if (how_ == sending::call || how_ == sending::tried) {
    const int flags = MSG_NOSIGNAL | (how_ == sending::tried ? MSG_DONTWAIT : 0);
    const int sent = result_of(::send(fd_, data.data(), data.size(), flags));
    if (how_ == sending::call || sent != -EAGAIN) return sent;
  }
  prepare(ring_->entry(), data);
  for (;;) {
    const io_uring_cqe end = ring_->next(waiting::blocking);
    if (end.flags & IORING_CQE_F_NOTIF) {
      --notices_due_;
      continue;
    }
    if (end.flags & IORING_CQE_F_MORE) ++notices_due_;
    while (notices_due_ >= most_notices) {
      if (ring_->next(waiting::blocking).flags & IORING_CQE_F_NOTIF) --notices_due_;
    }
    return end.res;
  }
}

void raw_sender::prepare(io_uring_sqe& sqe, std::span<const char> data) const noexcept {
  const auto bytes = static_cast<unsigned>(data.size());
  switch (how_) {
    case sending::write_fixed:
      return io_uring_prep_write_fixed(&sqe, fd_, data.data(), bytes, 0, 0);
    case sending::zero_copy:
      return io_uring_prep_send_zc(&sqe, fd_, data.data(), bytes, MSG_NOSIGNAL, 0);
    case sending::zero_copy_fixed:
      return io_uring_prep_send_zc_fixed(&sqe, fd_, data.data(), bytes, MSG_NOSIGNAL, 0,
                                         0);
    default:
      return io_uring_prep_send(&sqe, fd_, data.data(), bytes, MSG_NOSIGNAL);
  }
}

void raw_sender::settle() {
  for (; notices_due_ > 0; --notices_due_)
    static_cast<void>(ring_->next(waiting::blocking));
}

raw_receiver::raw_receiver(int fd, receiving how, waiting wait)
    : fd_(fd), how_(how), wait_(wait) {
  if (how != receiving::call) ring_.emplace();
  if (how == receiving::bundle && !(ring_->get()->features & has_receive_bundle))
    refuse_call("bundled receives", EOPNOTSUPP);
  if (has_provided()) provide();
}

raw_receiver::~raw_receiver() {
  if (!ring_of_buffers_) return;
  io_uring_unregister_buf_ring(ring_->get(), group);
  ::munmap(ring_of_buffers_, buffers * sizeof(io_uring_buf));
}

void raw_receiver::provide() {
  void* const at = ::mmap(nullptr, buffers * sizeof(io_uring_buf), PROT_READ | PROT_WRITE,
                          MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (at == MAP_FAILED) refuse_call("mmap", errno);
  ring_of_buffers_ = static_cast<io_uring_buf_ring*>(at);
  memory_ = std::make_unique<char[]>(buffers * buffer_bytes);
  io_uring_buf_reg about{};
  about.ring_addr = reinterpret_cast<std::uintptr_t>(at);
  about.ring_entries = buffers;
  about.bgid = group;
  const int error = -io_uring_register_buf_ring(ring_->get(), &about, 0);
  if (error != 0) refuse_call("providing buffers to io_uring", error);
  io_uring_buf_ring_init(ring_of_buffers_);
  give(buffers);
}

/// Buffers go back in the order in which they came, so that what fills several of them
/// stands in one piece.
void raw_receiver::give(unsigned count) noexcept {
  for (unsigned i = 0; i < count; ++i, next_given_ = (next_given_ + 1) % buffers) {
    io_uring_buf_ring_add(ring_of_buffers_, memory_.get() + next_given_ * buffer_bytes,
                          buffer_bytes, static_cast<unsigned short>(next_given_),
                          buffers - 1, static_cast<int>(i));
  }
  io_uring_buf_ring_advance(ring_of_buffers_, static_cast<int>(count));
}

void raw_receiver::receive_all(std::span<char> into) {
  while (!into.empty()) {
    const int got = has_provided() ? receive_provided(into) : receive_some(into);
    if (got == 0) throw std::runtime_error("the other process is gone");
    if (got > 0) {
      into = into.subspan(static_cast<std::size_t>(got));
    } else if (got != -EINTR && got != -EAGAIN) {
      refuse_call(name_of(how_), -got);
    }
  }
}

int raw_receiver::receive_some(std::span<char> into) {
  if (how_ == receiving::call || how_ == receiving::tried) {
    const bool waits = how_ == receiving::call && wait_ == waiting::blocking;
    const int got =
        result_of(::recv(fd_, into.data(), into.size(), waits ? 0 : MSG_DONTWAIT));
    // A reactor that spins tries again; one that is about to sleep asks the ring.
    if (how_ == receiving::call || wait_ == waiting::spinning || got != -EAGAIN)
      return got;
  }
  io_uring_prep_recv(&ring_->entry(), fd_, into.data(), into.size(), 0);
  return ring_->next(wait_).res;
}

int raw_receiver::receive_provided(std::span<char> into) {
  if (left_ == 0) await_provided();
  const std::size_t until_end = buffers * buffer_bytes - begin_;
  const std::size_t count = std::min({left_, into.size(), until_end});
  std::memcpy(into.data(), memory_.get() + begin_, count);
  begin_ = (begin_ + count) % (buffers * buffer_bytes);
  left_ -= count;
  if (left_ == 0) give(filled_);
  return static_cast<int>(count);
}

void raw_receiver::await_provided() {
  for (;;) {
    if (!is_armed_) {
      io_uring_sqe& sqe = ring_->entry();
      io_uring_prep_recv_multishot(&sqe, fd_, nullptr, 0, 0);
      if (how_ == receiving::bundle) sqe.ioprio |= receive_bundle;
      sqe.flags |= IOSQE_BUFFER_SELECT;
      sqe.buf_group = group;
      is_armed_ = true;
    }
    const io_uring_cqe end = ring_->next(wait_);
    is_armed_ = (end.flags & IORING_CQE_F_MORE) != 0;
    // All buffers were filled before any came back.
    if (end.res == -ENOBUFS) continue;
    if (end.res < 0) refuse_call(name_of(how_), -end.res);
    if (end.res == 0) throw std::runtime_error("the other process is gone");
    left_ = static_cast<std::size_t>(end.res);
    filled_ = static_cast<unsigned>((left_ + buffer_bytes - 1) / buffer_bytes);
    begin_ = (end.flags >> IORING_CQE_BUFFER_SHIFT) * buffer_bytes;
    return;
  }
}

}  // namespace mwbench

#endif
