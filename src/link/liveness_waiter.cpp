#include "link/liveness_waiter.hpp"

#include <pthread.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <ctime>
#include <utility>

#include "manyworlds/detail/assertion.hpp"

namespace manyworlds::inline v0::detail::shm {

namespace {

/// A futex that changed this often without a death is no longer waited on. Holding and
/// releasing change it twice.
constexpr int most_strikes = 16;
constexpr long poll_again_ns = 10'000'000;

::timespec in_ten_milliseconds() noexcept {
  ::timespec at{};
  ::clock_gettime(CLOCK_MONOTONIC, &at);
  at.tv_nsec += poll_again_ns;
  if (at.tv_nsec >= 1'000'000'000) {
    at.tv_nsec -= 1'000'000'000;
    ++at.tv_sec;
  }
  return at;
}

::futex_waitv wait_for_change(const std::atomic<std::uint32_t>& futex,
                              std::uint32_t expected, std::uint32_t scope) noexcept {
  ::futex_waitv w{};
  w.val = expected;
  w.uaddr = reinterpret_cast<std::uintptr_t>(&futex);
  w.flags = FUTEX_32 | scope;
  return w;
}

}  // namespace

liveness_waiter::liveness_waiter(const std::string& thread_name, death_function died,
                                 remark_function remark)
    : died_(std::move(died)), remark_(std::move(remark)), thread_([this] { run(); }) {
  pthread_setname_np(thread_.native_handle(), thread_name.substr(0, 15).c_str());
}

liveness_waiter::~liveness_waiter() {
  {
    const std::lock_guard lock(mutex_);
    ending_ = true;
    interrupt();
  }
  thread_.join();
}

bool liveness_waiter::add(liveness_futex& futex, std::uint64_t key) {
  const std::lock_guard lock(mutex_);
  MW_ASSERT(key != 0, "a key is not 0");
  for (slot& s : slots_) {
    if (s.key != 0) continue;
    s = slot{};
    s.futex = &futex;
    s.key = key;
    interrupt();
    return true;
  }
  return false;
}

void liveness_waiter::remove(std::uint64_t key) noexcept {
  std::unique_lock lock(mutex_);
  for (slot& s : slots_) {
    if (s.key == key) s = slot{};
  }
  // Also for a futex that is out already: the kernel may still hold its address for us,
  // and would take the wake-up of the next waiter there.
  const std::uint64_t round = rounds_;
  interrupt();
  round_begun_.wait(lock, [&] { return rounds_ != round; });
}

/// Called under the lock, so that the thread, which reads the control word under it,
/// either sees the change or is refused the wait.
void liveness_waiter::interrupt() noexcept {
  control_.fetch_add(1, std::memory_order_relaxed);
  ::syscall(SYS_futex, reinterpret_cast<std::uint32_t*>(&control_),
            FUTEX_WAKE | FUTEX_PRIVATE_FLAG, 1, nullptr, nullptr, 0);
}

void liveness_waiter::run() noexcept {
  for (;;) {
    {
      const std::lock_guard lock(mutex_);
      ++rounds_;
      round_begun_.notify_all();
      if (ending_) return;
      poll_all();
    }
    for (std::size_t i = 0; i < dead_count_; ++i) died_(dead_[i]);
    wait();
  }
}

void liveness_waiter::poll_all() noexcept {
  polls_.fetch_add(1, std::memory_order_relaxed);
  dead_count_ = 0;
  wait_count_ = 0;
  must_poll_again_ = false;
  waits_[wait_count_++] = wait_for_change(
      control_, control_.load(std::memory_order_relaxed), FUTEX_PRIVATE_FLAG);
  for (std::size_t i = 0; i < slots_.size(); ++i) {
    slot& s = slots_[i];
    if (s.key == 0) continue;
    switch (poll(s)) {
      case finding::dead:
        MW_ASSERT(dead_count_ < dead_.size(), "a holder dies once");
        dead_[dead_count_++] = s.key;
        s = slot{};
        break;
      case finding::wait_on_it:
        MW_ASSERT(wait_count_ < waits_.size(), "a wait has room for all futexes");
        waited_slot_[wait_count_] = i;
        waited_key_[wait_count_] = s.key;
        waits_[wait_count_++] = wait_for_change(*s.futex, s.expected, 0);
        break;
      case finding::poll_again:
        must_poll_again_ = true;
        break;
    }
  }
}

liveness_waiter::finding liveness_waiter::poll(slot& s) noexcept {
  std::uint32_t seen = s.futex->load(std::memory_order_relaxed);
  if (s.waited_on && (s.woken || seen != s.expected)) ++s.strikes;
  s.woken = false;
  s.waited_on = false;
  // The kernel wakes no waiter of a futex without this bit. The attempts are limited,
  // since a peer could keep changing the futex.
  for (int attempt = 0; attempt < 4; ++attempt) {
    if ((seen & FUTEX_OWNER_DIED) != 0) return finding::dead;
    if (s.strikes >= most_strikes) return finding::poll_again;
    s.expected = seen | FUTEX_WAITERS;
    if (s.futex->compare_exchange_strong(seen, s.expected, std::memory_order_relaxed)) {
      s.waited_on = true;
      return finding::wait_on_it;
    }
  }
  ++s.strikes;
  return finding::poll_again;
}

void liveness_waiter::wait() noexcept {
  const ::timespec until = must_poll_again_ ? in_ten_milliseconds() : ::timespec{};
  const long woken = ::syscall(SYS_futex_waitv, waits_.data(), wait_count_, 0,
                               must_poll_again_ ? &until : nullptr, CLOCK_MONOTONIC);
  const int error = woken < 0 ? errno : 0;
  if (error == 0) {
    const auto index = static_cast<std::size_t>(woken);
    if (index == 0) return;
    const std::lock_guard lock(mutex_);
    slot& s = slots_[waited_slot_[index]];
    if (s.key == waited_key_[index]) s.woken = true;
  } else if (error != EAGAIN && error != EINTR && error != ETIMEDOUT) {
    // Kernel memory ran out, or a filter came later: look periodically instead.
    if (!std::exchange(complained_, true)) {
      remark_(std::string("waiting for the deaths of peers failed (") +
              std::strerror(error) +
              "): their liveness futexes are polled every 10 ms instead");
    }
    wait_without_futexes();
  }
}

void liveness_waiter::wait_without_futexes() noexcept {
  std::unique_lock lock(mutex_);
  // Neither `add` nor `remove` notifies this wait: a caller waits at most this long.
  round_begun_.wait_for(lock, std::chrono::nanoseconds(poll_again_ns));
}

}  // namespace manyworlds::inline v0::detail::shm
