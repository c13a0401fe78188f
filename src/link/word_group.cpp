#include "link/word_group.hpp"

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

/// A word that changed this often without a death is no longer waited on. Holding and
/// releasing change it twice.
constexpr int most_strikes = 16;
constexpr long look_again_ns = 10'000'000;

::timespec in_ten_milliseconds() noexcept {
  ::timespec at{};
  ::clock_gettime(CLOCK_MONOTONIC, &at);
  at.tv_nsec += look_again_ns;
  if (at.tv_nsec >= 1'000'000'000) {
    at.tv_nsec -= 1'000'000'000;
    ++at.tv_sec;
  }
  return at;
}

::futex_waitv wait_for_change(const std::atomic<std::uint32_t>& word,
                              std::uint32_t expected, std::uint32_t scope) noexcept {
  ::futex_waitv w{};
  w.val = expected;
  w.uaddr = reinterpret_cast<std::uintptr_t>(&word);
  w.flags = FUTEX_32 | scope;
  return w;
}

}  // namespace

word_group::word_group(const std::string& thread_name, death_function died,
                       remark_function remark)
    : died_(std::move(died)), remark_(std::move(remark)), thread_([this] { run(); }) {
  pthread_setname_np(thread_.native_handle(), thread_name.substr(0, 15).c_str());
}

word_group::~word_group() {
  {
    const std::lock_guard lock(mutex_);
    ending_ = true;
    stir();
  }
  thread_.join();
}

bool word_group::add(life_word& word, std::uint64_t key) {
  const std::lock_guard lock(mutex_);
  MW_ASSERT(key != 0, "a key is not 0");
  for (slot& s : slots_) {
    if (s.key != 0) continue;
    s = slot{};
    s.word = &word;
    s.key = key;
    stir();
    return true;
  }
  return false;
}

void word_group::remove(std::uint64_t key) noexcept {
  std::unique_lock lock(mutex_);
  for (slot& s : slots_) {
    if (s.key == key) s = slot{};
  }
  // Also for a word that is out already: the kernel may still hold its address for us,
  // and would take the wake-up of the next waiter there.
  const std::uint64_t round = rounds_;
  stir();
  round_begun_.wait(lock, [&] { return rounds_ != round; });
}

/// Called under the lock, so that the thread, which reads the control word under it,
/// either sees the change or is refused the wait.
void word_group::stir() noexcept {
  control_.fetch_add(1, std::memory_order_relaxed);
  ::syscall(SYS_futex, reinterpret_cast<std::uint32_t*>(&control_),
            FUTEX_WAKE | FUTEX_PRIVATE_FLAG, 1, nullptr, nullptr, 0);
}

void word_group::run() noexcept {
  for (;;) {
    {
      const std::lock_guard lock(mutex_);
      ++rounds_;
      round_begun_.notify_all();
      if (ending_) return;
      look_at_all();
    }
    for (std::size_t i = 0; i < dead_count_; ++i) died_(dead_[i]);
    wait();
  }
}

void word_group::look_at_all() noexcept {
  looks_.fetch_add(1, std::memory_order_relaxed);
  dead_count_ = 0;
  wait_count_ = 0;
  must_look_again_ = false;
  waits_[wait_count_++] = wait_for_change(
      control_, control_.load(std::memory_order_relaxed), FUTEX_PRIVATE_FLAG);
  for (std::size_t i = 0; i < slots_.size(); ++i) {
    slot& s = slots_[i];
    if (s.key == 0) continue;
    switch (look(s)) {
      case finding::dead:
        MW_ASSERT(dead_count_ < dead_.size(), "a word dies once a look");
        dead_[dead_count_++] = s.key;
        s = slot{};
        break;
      case finding::wait_on_it:
        MW_ASSERT(wait_count_ < waits_.size(), "a wait has room for all words");
        waited_slot_[wait_count_] = i;
        waited_key_[wait_count_] = s.key;
        waits_[wait_count_++] = wait_for_change(*s.word, s.expected, 0);
        break;
      case finding::look_again:
        must_look_again_ = true;
        break;
    }
  }
}

word_group::finding word_group::look(slot& s) noexcept {
  std::uint32_t seen = s.word->load(std::memory_order_relaxed);
  if (s.waited_on && (s.stirred || seen != s.expected)) ++s.strikes;
  s.stirred = false;
  s.waited_on = false;
  // The kernel wakes no waiter of a word without this bit. The attempts are limited,
  // since a peer could keep changing the word.
  for (int attempt = 0; attempt < 4; ++attempt) {
    if ((seen & FUTEX_OWNER_DIED) != 0) return finding::dead;
    if (s.strikes >= most_strikes) return finding::look_again;
    s.expected = seen | FUTEX_WAITERS;
    if (s.word->compare_exchange_strong(seen, s.expected, std::memory_order_relaxed)) {
      s.waited_on = true;
      return finding::wait_on_it;
    }
  }
  ++s.strikes;
  return finding::look_again;
}

void word_group::wait() noexcept {
  const ::timespec until = must_look_again_ ? in_ten_milliseconds() : ::timespec{};
  const long woken = ::syscall(SYS_futex_waitv, waits_.data(), wait_count_, 0,
                               must_look_again_ ? &until : nullptr, CLOCK_MONOTONIC);
  const int error = woken < 0 ? errno : 0;
  if (error == 0) {
    const auto index = static_cast<std::size_t>(woken);
    if (index == 0) return;
    const std::lock_guard lock(mutex_);
    slot& s = slots_[waited_slot_[index]];
    if (s.key == waited_key_[index]) s.stirred = true;
  } else if (error != EAGAIN && error != EINTR && error != ETIMEDOUT) {
    // Kernel memory ran out, or a filter came later: look periodically instead.
    if (!std::exchange(complained_, true)) {
      remark_(std::string("waiting for the deaths of peers failed (") +
              std::strerror(error) + "): their words are polled every 10 ms instead");
    }
    wait_without_the_words();
  }
}

void word_group::wait_without_the_words() noexcept {
  std::unique_lock lock(mutex_);
  // No change of the group notifies this wait: a caller waits at most this long.
  round_begun_.wait_for(lock, std::chrono::nanoseconds(look_again_ns));
}

}  // namespace manyworlds::inline v0::detail::shm
