// Liveness waiter: one thread that waits on the liveness futexes of up to 127 peers.
#pragma once

#include <linux/futex.h>

#include <array>
#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <string>
#include <thread>

#include "link/liveness_futex.hpp"

namespace manyworlds::inline v0::detail::shm {

/// Waits in one system call on all futexes and on a private control word. This process
/// touches a futex only under the lock, from `add` to `remove`.
class liveness_waiter {
 public:
  /// Called on the waiter's thread, unlocked, with the key of a futex after its holder
  /// has died; the futex is no longer waited on.
  using death_function = std::function<void(std::uint64_t key)>;
  using remark_function = std::function<void(std::string)>;

  /// Starts the thread. Errors: std::system_error if the system gives none.
  liveness_waiter(const std::string& thread_name, death_function died,
                  remark_function remark);
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

  /// The system call takes 128 futexes, one of which is the control word.
  static constexpr std::size_t most = FUTEX_WAITV_MAX - 1;

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
  remark_function remark_;
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

}  // namespace manyworlds::inline v0::detail::shm
