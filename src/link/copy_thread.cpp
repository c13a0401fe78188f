#include "link/copy_thread.hpp"

#include <pthread.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <system_error>
#include <utility>

#include "io/signals_blocked.hpp"
#include "manyworlds/detail/assertion.hpp"

namespace manyworlds::inline v0::detail::shm {

namespace {

/// The next slice of a payload comes within this time or not at all; a sleeping thread
/// takes about as long to wake.
constexpr std::chrono::microseconds looks_on(100);

/// The end of a job waits for no more than this.
constexpr std::size_t most_at_once = std::size_t{256} * 1024;

/// Consumes a list of pieces step by step.
class iovec_walk {
 public:
  explicit iovec_walk(std::span<const iovec> list) noexcept : list_(list) {}

  [[nodiscard]] std::span<const iovec> next(std::size_t bytes) noexcept {
    std::size_t count = 0;
    while (bytes > 0 && at_ < list_.size()) {
      MW_ASSERT(count < next_.size(), "a job has a limited number of pieces");
      const iovec& piece = list_[at_];
      MW_ASSERT(used_ <= piece.iov_len, "a cursor stays within its piece");
      const std::size_t step = std::min(bytes, piece.iov_len - used_);
      next_[count++] = {static_cast<std::byte*>(piece.iov_base) + used_, step};
      bytes -= step;
      used_ += step;
      if (used_ == piece.iov_len) {
        ++at_;
        used_ = 0;
      }
    }
    return std::span(next_).first(count);
  }

 private:
  std::span<const iovec> list_;
  std::size_t at_ = 0;
  std::size_t used_ = 0;
  std::array<iovec, copy_job::most_pieces> next_;
};

}  // namespace

void copy_job::end() noexcept {
  state expected = state::waiting;
  if (state_.compare_exchange_strong(expected, state::ended, std::memory_order_acq_rel)) {
    error_ = ECANCELED;
    return;
  }
  is_unwanted_.store(true, std::memory_order_relaxed);
  while (!has_ended()) std::this_thread::yield();
}

void copy_job::run() noexcept {
  state expected = state::waiting;
  if (!state_.compare_exchange_strong(expected, state::running,
                                      std::memory_order_acq_rel)) {
    return;
  }
  error_ = read_all();
  state_.store(state::ended, std::memory_order_release);
}

int copy_job::read_all() noexcept {
  iovec_walk into{std::span(here).first(places)};
  iovec_walk from{std::span(there).first(pieces)};
  for (std::size_t left = bytes; left > 0;) {
    if (is_unwanted_.load(std::memory_order_relaxed)) return ECANCELED;
    const std::size_t now = std::min(left, most_at_once);
    const ssize_t got = from_.read(into.next(now), from.next(now));
    if (got < 0) return errno;
    if (static_cast<std::size_t>(got) != now) return EFAULT;
    left -= now;
  }
  return 0;
}

copy_thread::copy_thread(std::string thread_name) : thread_name_(std::move(thread_name)) {
  CPU_ZERO(&allowed_);
  if (::sched_getaffinity(0, sizeof allowed_, &allowed_) != 0) CPU_ZERO(&allowed_);
}

copy_thread::~copy_thread() {
  {
    const std::lock_guard lock(mutex_);
    over_ = true;
  }
  changed_.notify_one();
  if (thread_.joinable()) thread_.join();
}

bool copy_thread::launch() {
  if (thread_.joinable()) return true;
  if (refused_) return false;
  const signals_blocked while_starting;
  try {
    thread_ = std::thread([this] { run(); });
  } catch (const std::system_error&) {
    refused_ = true;
    return false;
  }
  ::pthread_setname_np(thread_.native_handle(), thread_name_.substr(0, 15).c_str());
  const cpu_set_t others = beside_caller();
  ::pthread_setaffinity_np(thread_.native_handle(), sizeof others, &others);
  return true;
}

// If the caller is pinned to a CPU and no other is idle, the kernel would let this
// thread wait there for the next tick, milliseconds away: 16 MiB took 3.8 ms, not 1.0.
cpu_set_t copy_thread::beside_caller() const noexcept {
  cpu_set_t own;
  if (::sched_getaffinity(0, sizeof own, &own) != 0 || CPU_COUNT(&own) != 1)
    return allowed_;
  cpu_set_t common;
  CPU_AND(&common, &allowed_, &own);
  cpu_set_t others;
  CPU_XOR(&others, &allowed_, &common);
  return CPU_COUNT(&others) > 0 ? others : allowed_;
}

bool copy_thread::start(std::shared_ptr<copy_job> job) {
  MW_ASSERT(job->pieces <= copy_job::most_pieces && job->places <= copy_job::most_pieces,
            "a job's lists fit");
  MW_ASSERT(job->bytes > 0, "a job has something to read");
  {
    const std::lock_guard lock(mutex_);
    if (!is_free() || !launch()) return false;
    last_ = job;
    next_ = std::move(job);
    has_next_.store(true, std::memory_order_relaxed);
  }
  changed_.notify_one();
  return true;
}

void copy_thread::run() noexcept {
  while (const auto job = next()) {
    job->run();
    const auto until = std::chrono::steady_clock::now() + looks_on;
    while (!has_next_.load(std::memory_order_relaxed) &&
           std::chrono::steady_clock::now() < until) {
      std::this_thread::yield();
    }
  }
}

std::shared_ptr<copy_job> copy_thread::next() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return over_ || next_; });
  if (over_) return nullptr;
  has_next_.store(false, std::memory_order_relaxed);
  return std::move(next_);
}

}  // namespace manyworlds::inline v0::detail::shm
