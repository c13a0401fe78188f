// Robust word: a word in shared memory by which the kernel reports our death to a peer.
#pragma once

#include <linux/futex.h>
#include <sys/types.h>

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace manyworlds::inline v0::detail::shm {

/// The word that a peer watches. It is 0 (not held yet, or released in order), or the
/// id of the thread that holds it, with FUTEX_WAITERS once a peer watches. The kernel
/// sets FUTEX_OWNER_DIED when the holding thread has ended, before it tears down the
/// process's memory.
using life_word = std::atomic<std::uint32_t>;
static_assert(sizeof(life_word) == 4 && life_word::is_always_lock_free);

/// The distance from an entry to its word behind it: a page of the arena.
inline constexpr std::size_t entry_distance = 4096;

/// Wakes every wait on the word, in any process.
void wake_all(life_word& word) noexcept;

/// The robust list of the calling thread: the words that it holds, in the form that the
/// kernel reads when the thread ends.
///
/// A thread has one such list, and this one replaces glibc's. Precondition: no robust
/// pthread mutex is locked on the thread meanwhile. Lifetime: made on the service
/// thread; destroyed there, which restores glibc's list, or after that thread has
/// ended.
class robust_words {
 public:
  robust_words() noexcept;
  robust_words(const robust_words&) = delete;
  robust_words& operator=(const robust_words&) = delete;
  ~robust_words();

  /// Says that the kernel takes the list. Where it does not, nothing can be held.
  [[nodiscard]] bool is_installed() const noexcept { return installed_; }
  /// Says that the caller is the thread of this list, which a forked child is not.
  [[nodiscard]] bool is_mine() const noexcept;
  [[nodiscard]] std::size_t size() const noexcept { return size_; }

  /// The kernel reads at most this many entries of a list (ROBUST_LIST_LIMIT).
  static constexpr std::size_t most = 2048;

 private:
  friend class robust_word;

  ::robust_list_head head_{};
  ::robust_list_head* before_ = nullptr;
  class robust_word* first_ = nullptr;
  std::size_t size_ = 0;
  pid_t thread_;
  bool installed_ = false;
};

/// The steps of holding and releasing, between which tests kill.
enum class robust_step : unsigned char {
  announced,  ///< the kernel knows that the word is about to change
  written,    ///< the word names its holder (when releasing: none)
  woken,      ///< the waiters on the old value look at the new one
  listed,     ///< the word is in the list (when releasing: no longer)
  settled,    ///< the announcement is withdrawn
};

/// Reports our death to a peer; destroying it is a goodbye.
class held_life {
 public:
  virtual ~held_life() = default;
};

/// One word of ours in a link's arena, held from `hold` to `release`. Thread: the
/// service thread.
///
/// The kernel follows the list's pointers when the thread ends, so they must not lie
/// where a peer can write. The entry stands in the private page before the arena, at
/// the same offset as the word in the arena. So one distance (`entry_distance`) leads
/// from any entry to its word. Lifetime: the word lies in the arena's first page, which
/// must stay mapped until the release, since the kernel stops at a word that it cannot
/// read.
class robust_word final : public held_life {
 public:
  robust_word(robust_words& words, std::byte* in_first_page) noexcept;
  robust_word(const robust_word&) = delete;
  robust_word& operator=(const robust_word&) = delete;
  /// Releases the word. It leaves the word alone on another thread than that of the
  /// words: in a forked child, or after that thread has ended.
  ~robust_word() override { release(); }

  [[nodiscard]] bool is_held() const noexcept { return held_; }

  /// Holds the word: from here on the peer notices the end of this thread, no matter
  /// what ends it. Returns false without a list, or if `robust_words::most` are held
  /// already.
  bool hold() noexcept {
    return hold([](robust_step) noexcept {});
  }
  /// Releases the word as a goodbye: the end of this thread is no longer reported.
  void release() noexcept {
    release([](robust_step) noexcept {});
  }

  template <class Hook>
  bool hold(Hook&& after) noexcept {
    if (held_) return true;
    if (!words_.is_installed() || !words_.is_mine() || words_.size_ >= words_.most)
      return false;
    // A kill before the word is written breaks no promise. From then on the kernel
    // finds the word by the announcement or by the list.
    announce();
    after(robust_step::announced);
    const bool watched = write_self();
    after(robust_step::written);
    if (watched) wake_all(word_);
    after(robust_step::woken);
    enter();
    after(robust_step::listed);
    settle();
    after(robust_step::settled);
    return true;
  }

  template <class Hook>
  void release(Hook&& after) noexcept {
    if (!held_ || !words_.is_mine()) return;
    // A kill before the word is cleared is a death. After that it is a goodbye, and the
    // kernel wakes the watcher if we did not.
    announce();
    after(robust_step::announced);
    leave();
    after(robust_step::listed);
    const bool watched = clear();
    after(robust_step::written);
    if (watched) wake_all(word_);
    after(robust_step::woken);
    settle();
    after(robust_step::settled);
  }

 private:
  void announce() noexcept;
  /// Both return whether a watcher waits on the word.
  bool write_self() noexcept;
  bool clear() noexcept;
  void enter() noexcept;
  void leave() noexcept;
  void settle() noexcept;

  robust_words& words_;
  life_word& word_;
  ::robust_list& entry_;
  robust_word* next_ = nullptr;
  robust_word* previous_ = nullptr;
  bool held_ = false;
};

}  // namespace manyworlds::inline v0::detail::shm
