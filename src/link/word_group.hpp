// Word group: one thread that waits on the words of up to 127 peers.
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

#include "link/robust_word.hpp"

namespace manyworlds::inline v0::detail::shm {

/// Waits in one system call on all words and on a private control word. This process
/// touches a word only under the lock and while it is in the group.
class word_group {
 public:
  /// Called on the group's thread, unlocked, with the key of a word after its holder
  /// has died; the word has left the group.
  using death_function = std::function<void(std::uint64_t key)>;
  using remark_function = std::function<void(std::string)>;

  /// Starts the thread. Errors: std::system_error if the system gives none.
  word_group(const std::string& thread_name, death_function died, remark_function remark);
  word_group(const word_group&) = delete;
  word_group& operator=(const word_group&) = delete;
  ~word_group();

  /// Adds a word. Returns false if the group is full. Precondition: the key is not 0.
  [[nodiscard]] bool add(life_word& word, std::uint64_t key);
  /// Removes a word, which is not touched afterwards. Waits until the thread has left
  /// the kernel.
  void remove(std::uint64_t key) noexcept;

  [[nodiscard]] std::uint64_t looks() const noexcept {
    return looks_.load(std::memory_order_relaxed);
  }

  /// The system call takes 128 words, one of which is the control word.
  static constexpr std::size_t most = FUTEX_WAITV_MAX - 1;

 private:
  struct slot {
    life_word* word = nullptr;
    std::uint64_t key = 0;
    /// The value with which the kernel last waited.
    std::uint32_t expected = 0;
    bool waited_on = false;
    /// The kernel woke the thread for it.
    bool stirred = false;
    int strikes = 0;
  };
  enum class finding : unsigned char { dead, wait_on_it, look_again };

  void run() noexcept;
  void look_at_all() noexcept;
  [[nodiscard]] static finding look(slot& s) noexcept;
  void wait() noexcept;
  void wait_without_the_words() noexcept;
  void stir() noexcept;

  death_function died_;
  remark_function remark_;
  std::atomic<std::uint64_t> looks_{0};

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
  bool must_look_again_ = false;
  bool complained_ = false;
  /// Declared last, since it uses the other members from its start.
  std::thread thread_;
};

}  // namespace manyworlds::inline v0::detail::shm
