// Processes that hold liveness futexes in shared memory, and a watch on them.
#pragma once

#include <doctest/doctest.h>
#include <poll.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "io/engines.hpp"
#include "link/death_watch.hpp"
#include "link/liveness_futex.hpp"
#include "support/refused_calls.hpp"

namespace manyworlds::link_tests {

using namespace std::chrono_literals;
using steady = std::chrono::steady_clock;

inline double milliseconds_since(steady::time_point then) {
  return std::chrono::duration<double, std::milli>(steady::now() - then).count();
}

/// A segment's first page, and the private one before it. A forked child shares the
/// former.
class futex_page {
 public:
  static constexpr std::size_t futexes = 256;

  futex_page() {
    void* at = ::mmap(nullptr, 2 * shm::entry_distance, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    REQUIRE(at != MAP_FAILED);
    base_ = static_cast<std::byte*>(at) + shm::entry_distance;
    at = ::mmap(base_, shm::entry_distance, PROT_READ | PROT_WRITE,
                MAP_SHARED | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
    REQUIRE(at == base_);
  }
  futex_page(const futex_page&) = delete;
  futex_page& operator=(const futex_page&) = delete;
  ~futex_page() { ::munmap(base_ - shm::entry_distance, 2 * shm::entry_distance); }

  std::byte* at(std::size_t index) { return base_ + index * 16; }
  shm::liveness_futex& futex(std::size_t index = 0) {
    return *reinterpret_cast<shm::liveness_futex*>(at(index));
  }

 private:
  std::byte* base_ = nullptr;
};

/// A forked child that runs `body`, and says so when it has come to a point.
class child_process {
 public:
  /// What a body may do.
  class voice {
   public:
    explicit voice(int fd) : fd_(fd) {}
    void say() const {
      if (::write(fd_, "!", 1) != 1) ::_exit(3);
    }
    /// Until killed; never longer than the test.
    [[noreturn]] void wait_for_ever() const {
      for (;;) ::pause();
    }

   private:
    int fd_;
  };

  template <class Body>
  explicit child_process(Body body) {
    int ends[2];
    REQUIRE(::pipe(ends) == 0);
    // The child's copy of what was not yet written would be written again.
    std::fflush(nullptr);
    pid_ = ::fork();
    REQUIRE(pid_ >= 0);
    if (pid_ == 0) {
      ::close(ends[0]);
      ::signal(SIGALRM, SIG_DFL);
      ::alarm(60);
      body(voice(ends[1]));
      ::_exit(0);
    }
    ::close(ends[1]);
    heard_ = ends[0];
  }
  child_process(child_process&& other) noexcept
      : pid_(std::exchange(other.pid_, -1)), heard_(std::exchange(other.heard_, -1)) {}
  child_process& operator=(child_process&&) = delete;
  ~child_process() {
    if (pid_ > 0) {
      kill(SIGKILL);
      reap();
    }
    if (heard_ >= 0) ::close(heard_);
  }

  /// Has said so once more, within `limit`.
  [[nodiscard]] bool hear(std::chrono::milliseconds limit = 30s) const {
    ::pollfd asked{heard_, POLLIN, 0};
    char c = 0;
    return ::poll(&asked, 1, static_cast<int>(limit.count())) == 1 &&
           ::read(heard_, &c, 1) == 1;
  }
  void kill(int signal = SIGKILL) const { REQUIRE(::kill(pid_, signal) == 0); }
  /// Its status.
  int reap() {
    int status = 0;
    CHECK(::waitpid(std::exchange(pid_, -1), &status, 0) > 0);
    return status;
  }
  [[nodiscard]] pid_t pid() const { return pid_; }

 private:
  pid_t pid_ = -1;
  int heard_ = -1;
};

/// Holds some futexes until it is killed.
inline child_process holder_of(futex_page& page, std::size_t first = 0,
                               std::size_t count = 1) {
  child_process child([&page, first, count](child_process::voice v) {
    shm::robust_futex_list list;
    std::deque<shm::held_futex> held;
    for (std::size_t i = first; i < first + count; ++i) {
      if (!held.emplace_back(list, page.at(i)).hold()) ::_exit(2);
    }
    v.say();
    v.wait_for_ever();
  });
  REQUIRE(child.hear());
  return child;
}

using testing::refuse;

/// A reactor, and a death watch on it.
class watcher {
 public:
  explicit watcher(const std::string& name = "mw-death")
      : reactor_(make_epoll_engine(), {.spin = duration::zero()}),
        watch_(reactor_, name, [this](std::string line) {
          const std::lock_guard lock(mutex_);
          lines_.push_back(std::move(line));
        }) {}

  reactor& home() { return reactor_; }
  shm::death_watch& deaths() { return watch_; }
  std::vector<std::string> lines() {
    const std::lock_guard lock(mutex_);
    return lines_;
  }

  template <class Condition>
  bool turn_until(Condition condition, duration limit = 20s) {
    struct alarm_clock final : timer {
      alarm_clock()
          : timer([](timer& t) noexcept { static_cast<alarm_clock&>(t).rang = true; }) {}
      bool rang = false;
    } alarm;
    reactor_.timers().arm(alarm, reactor_.now() + limit);
    while (!condition() && !alarm.rang) {
      if (!reactor_.turn()) reactor_.wait();
    }
    if (!alarm.rang) reactor_.timers().disarm(alarm);
    return condition();
  }

  /// Everything that happened before this call and can be noticed has been noticed after
  /// it: another process dies in front of the same thread.
  void let_notices_come() {
    futex_page page;
    child_process other = holder_of(page);
    bool seen = false;
    const auto t = watch_.add(page.futex(), [&] { seen = true; });
    other.kill();
    CHECK(turn_until([&] { return seen; }));
    watch_.remove(t);
  }

 private:
  std::mutex mutex_;
  std::vector<std::string> lines_;
  reactor reactor_;
  shm::death_watch watch_;
};

}  // namespace manyworlds::link_tests
