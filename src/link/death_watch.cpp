#include "link/death_watch.hpp"

#include <pthread.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <ctime>
#include <system_error>
#include <thread>
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

/// One thread that waits, in one system call, on the futexes of up to `most` peers and on
/// a private control word. This process touches a futex only under the lock, from `add`
/// to `remove`.
class liveness_waiter {
 public:
  /// Called on the waiter's thread, unlocked, with the key of a futex after its holder
  /// has died; the futex is no longer waited on.
  using death_function = std::function<void(std::uint64_t key)>;
  using log_function = death_watch::log_function;

  /// Starts the thread. Errors: std::system_error if the system gives none.
  liveness_waiter(const std::string& thread_name, death_function died, log_function log);
  liveness_waiter(const liveness_waiter&) = delete;
  liveness_waiter& operator=(const liveness_waiter&) = delete;
  ~liveness_waiter();

  /// Adds a futex. Returns false if there are `most`. Precondition: the key is not 0.
  [[nodiscard]] bool add(liveness_futex& futex, std::uint64_t key);
  /// Removes a futex, which is not touched afterwards. Waits until the thread has left
  /// the kernel.
  void remove(std::uint64_t key) noexcept;

  [[nodiscard]] std::uint64_t polls() const noexcept {
    return polls_.load(std::memory_order_relaxed);
  }

  static constexpr std::size_t most = death_watch::futexes_per_thread;

 private:
  struct slot {
    liveness_futex* futex = nullptr;
    std::uint64_t key = 0;
    /// The value with which the kernel last waited.
    std::uint32_t expected = 0;
    bool waited_on = false;
    /// The kernel woke the thread for it.
    bool woken = false;
    int strikes = 0;
  };
  enum class finding : unsigned char { dead, wait_on_it, poll_again };

  void run() noexcept;
  void poll_all() noexcept;
  [[nodiscard]] static finding poll(slot& s) noexcept;
  void wait() noexcept;
  void wait_without_futexes() noexcept;
  void interrupt() noexcept;

  death_function died_;
  log_function log_;
  std::atomic<std::uint64_t> polls_{0};

  std::mutex mutex_;
  std::condition_variable round_begun_;
  /// The rest belongs to the thread, or is guarded by mutex_.
  std::array<slot, most> slots_{};
  std::uint64_t rounds_ = 0;
  bool ending_ = false;
  std::atomic<std::uint32_t> control_{0};
  std::array<std::uint64_t, most> dead_{};
  std::size_t dead_count_ = 0;
  std::array<::futex_waitv, most + 1> waits_{};
  std::array<std::size_t, most + 1> waited_slot_{};
  std::size_t wait_count_ = 0;
  std::array<std::uint64_t, most + 1> waited_key_{};
  bool must_poll_again_ = false;
  bool complained_ = false;
  /// Declared last, since it uses the other members from its start.
  std::thread thread_;
};

// --- the waiter

liveness_waiter::liveness_waiter(const std::string& thread_name, death_function died,
                                 log_function log)
    : died_(std::move(died)), log_(std::move(log)), thread_([this] { run(); }) {
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
      log_(std::string("waiting for the deaths of peers failed (") +
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

// --- the watch

death_watch::death_watch(reactor& home, std::string thread_name, log_function log)
    : home_(home), thread_name_(std::move(thread_name)), log_(std::move(log)) {}

death_watch::~death_watch() = default;

bool death_watch::may_wait() {
  if (std::exchange(asked_, true)) return !refused_;
  // A wait for no futex is an invalid argument where the call is known and allowed.
  ::syscall(SYS_futex_waitv, nullptr, 0, 0, nullptr, CLOCK_MONOTONIC);
  refused_ = errno != EINVAL;
  if (refused_) {
    log_(std::string("futex_waitv is refused here (") + std::strerror(errno) +
         "): the death of a peer on this host is noticed by its sockets and its "
         "process handle; usual causes: Linux before 5.16, a seccomp filter");
  }
  return !refused_;
}

death_watch::ticket death_watch::add(liveness_futex& futex, std::function<void()> died) {
  if (!may_wait()) return ticket::none;
  const auto t = static_cast<ticket>(++last_ticket_);
  {
    // The watching threads must not run out of memory, so room for all notices is made
    // here.
    const std::lock_guard lock(mutex_);
    dead_.reserve(dead_.size() + watched_.size() + 1);
    delivering_.reserve(dead_.capacity());
  }
  const auto entry = watched_.emplace(t, watched{nullptr, std::move(died)}).first;
  try {
    entry->second.where = &place(futex, t);
  } catch (const std::system_error& e) {
    watched_.erase(entry);
    log_(std::string("no thread to notice the death of peers with: ") + e.what());
    return ticket::none;
  }
  return t;
}

liveness_waiter& death_watch::place(liveness_futex& futex, ticket t) {
  const auto key = static_cast<std::uint64_t>(t);
  for (const auto& w : waiters_) {
    if (w->add(futex, key)) return *w;
  }
  const auto died = [this](std::uint64_t k) { tell(static_cast<ticket>(k)); };
  waiters_.push_back(std::make_unique<liveness_waiter>(thread_name_, died, log_));
  // A new waiter has room.
  static_cast<void>(waiters_.back()->add(futex, key));
  return *waiters_.back();
}

void death_watch::remove(ticket t) noexcept {
  const auto found = watched_.find(t);
  if (found == watched_.end()) return;
  found->second.where->remove(static_cast<std::uint64_t>(t));
  watched_.erase(found);
}

void death_watch::tell(ticket t) noexcept {
  {
    const std::lock_guard lock(mutex_);
    MW_ASSERT(dead_.size() < dead_.capacity(), "a watching thread allocates nothing");
    dead_.push_back(t);
    if (std::exchange(posted_, true)) return;
  }
  home_.post(delivery_);
}

void death_watch::deliver() noexcept {
  {
    MW_ASSERT(delivering_.empty(), "deaths are delivered one round at a time");
    const std::lock_guard lock(mutex_);
    std::swap(dead_, delivering_);
    posted_ = false;
  }
  // By index: `died` may add, which may move the elements.
  for (std::size_t i = 0; i < delivering_.size(); ++i) {
    const auto found = watched_.find(delivering_[i]);
    if (found == watched_.end()) continue;
    // Moved, since `died` may remove itself.
    const auto died = std::move(found->second.died);
    died();
  }
  delivering_.clear();
}

std::uint64_t death_watch::polls() const noexcept {
  std::uint64_t all = 0;
  for (const auto& w : waiters_) all += w->polls();
  return all;
}

}  // namespace manyworlds::inline v0::detail::shm
