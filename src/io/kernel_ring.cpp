#include "manyworlds/detail/config.hpp"

#if MANYWORLDS_HAS_IO_URING

#include "io/kernel_ring.hpp"

#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>

namespace manyworlds::inline v0::detail {

namespace {

constexpr unsigned submissions = 512;
// Completions beyond these are kept by the kernel (FEAT_NODROP), so this bounds what is
// cheap, not what may be in flight: a bound on that would let parked receives keep out
// everything else.
constexpr unsigned completions = 4096;
static_assert(completions >= 2 * submissions, "a full submission queue can complete");

// With deferred task work, completions are made only when this thread asks for them, and
// a flag in user memory tells that there is something to ask for. The flag sets need
// Linux 6.1; 5.19; 5.11.
constexpr std::array<unsigned, 3> flag_sets = {
    IORING_SETUP_SINGLE_ISSUER | IORING_SETUP_DEFER_TASKRUN | IORING_SETUP_TASKRUN_FLAG |
        IORING_SETUP_SUBMIT_ALL | IORING_SETUP_R_DISABLED,
    IORING_SETUP_COOP_TASKRUN | IORING_SETUP_TASKRUN_FLAG | IORING_SETUP_SUBMIT_ALL |
        IORING_SETUP_R_DISABLED,
    IORING_SETUP_R_DISABLED,
};

constexpr unsigned needed_features = IORING_FEAT_NODROP | IORING_FEAT_SUBMIT_STABLE |
                                     IORING_FEAT_FAST_POLL | IORING_FEAT_EXT_ARG;

constexpr std::array needed_operations = {
    IORING_OP_ACCEPT, IORING_OP_CONNECT, IORING_OP_RECV,     IORING_OP_RECVMSG,
    IORING_OP_SEND,   IORING_OP_SENDMSG, IORING_OP_POLL_ADD, IORING_OP_ASYNC_CANCEL,
    IORING_OP_READ,   IORING_OP_READV,
};

}  // namespace

kernel_ring::kernel_ring() noexcept {
  error_ = make();
  if (error_ == 0) error_ = lacks();
}

kernel_ring::~kernel_ring() {
  if (made_) io_uring_queue_exit(&ring_);
}

void kernel_ring::enable() noexcept {
  if (enabled_) return;
  // liburing 2.3 declares `io_uring_enable_rings` and does not export it.
  ::syscall(__NR_io_uring_register, ring_.ring_fd, IORING_REGISTER_ENABLE_RINGS, nullptr,
            0);
  enabled_ = true;
}

// The kernel knows best: numbers of threads are used again.
bool kernel_ring::is_ours() noexcept {
  return ::syscall(__NR_io_uring_enter, ring_.ring_fd, 0, 0, IORING_ENTER_GETEVENTS,
                   nullptr, 0) >= 0 ||
         errno != EEXIST;
}

int kernel_ring::renew() noexcept {
  io_uring old = ring_;
  if (const int error = make(); error != 0) {
    ring_ = old;
    made_ = true;
    return error;
  }
  io_uring_queue_exit(&old);
  enabled_ = false;
  return 0;
}

void kernel_ring::cancel_everything(std::uint64_t own) noexcept {
  io_uring_sqe* sqe = io_uring_get_sqe(&ring_);
  if (!sqe) {
    io_uring_submit(&ring_);
    sqe = io_uring_get_sqe(&ring_);
  }
  if (sqe) {
    io_uring_prep_cancel64(sqe, 0, IORING_ASYNC_CANCEL_ANY | IORING_ASYNC_CANCEL_ALL);
    io_uring_sqe_set_data64(sqe, own);
  }
}

void kernel_ring::stop_everything(std::size_t in_flight, std::uint64_t own) noexcept {
  if (in_flight == 0 || !enabled_) return;
  cancel_everything(own);
  __kernel_timespec limit{1, 0};
  io_uring_cqe* cqe = nullptr;
  while (in_flight > 0) {
    // A file that is being read cannot be cancelled: its disk may take longer.
    const int error = io_uring_submit_and_wait_timeout(&ring_, &cqe, 1, &limit, nullptr);
    if (error == -EINTR || error == -ETIME) continue;
    if (error < 0 || !cqe) return;
    if (cqe->user_data > own) --in_flight;
    io_uring_cqe_seen(&ring_, cqe);
  }
}

int kernel_ring::make() noexcept {
  int error = EINVAL;
  for (const unsigned flags : flag_sets) {
    io_uring_params params{};
    params.flags = flags | IORING_SETUP_CQSIZE;
    params.cq_entries = completions;
    error = -io_uring_queue_init_params(submissions, &ring_, &params);
    made_ = error == 0;
    if (error != EINVAL) break;
  }
  return error;
}

int kernel_ring::lacks() noexcept {
  if ((ring_.features & needed_features) != needed_features) return EOPNOTSUPP;
  io_uring_probe* probe = io_uring_get_probe_ring(&ring_);
  if (!probe) return EOPNOTSUPP;
  const bool has_all = std::all_of(
      needed_operations.begin(), needed_operations.end(),
      [probe](int operation) { return io_uring_opcode_supported(probe, operation); });
  io_uring_free_probe(probe);
  return has_all ? 0 : EOPNOTSUPP;
}

}  // namespace manyworlds::inline v0::detail

#endif
