// Robust word: a word in shared memory by which the kernel tells a peer that we have
// died.
#pragma once

#include <linux/futex.h>
#include <sys/types.h>

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace manyworlds::inline v0::shm {

/// What a peer watches: 0 (not held yet, or let go in order), or the id of the thread
/// that holds it, with FUTEX_WAITERS once somebody watches; FUTEX_OWNER_DIED when that
/// thread has ended holding it, set by the kernel before the process's memory is torn
/// down.
using life_word = std::atomic<std::uint32_t>;
static_assert(sizeof(life_word) == 4 && life_word::is_always_lock_free);

/// How far before a word its entry stands: a page of the arena.
inline constexpr std::size_t entry_distance = 4096;

/// Ends every wait on the word, in any process.
void wake_all(life_word& word) noexcept;

/// The words that the calling thread holds, in the form the kernel reads when the thread
/// ends: its robust list.
///
/// A thread has one such list, and glibc's is set aside while this one is there: no
/// robust pthread mutex may be locked on the thread meanwhile. Made on the service
/// thread; destroyed there, which puts glibc's list back, or after that thread has ended.
class robust_words {
 public:
  robust_words() noexcept;
  robust_words(const robust_words&) = delete;
  robust_words& operator=(const robust_words&) = delete;
  ~robust_words();

  /// The kernel takes the list. Where it does not, nothing can be held.
  [[nodiscard]] bool is_installed() const noexcept { return installed_; }
  /// The caller is the thread whose list this is: not so in a forked child.
  [[nodiscard]] bool is_mine() const noexcept;
  [[nodiscard]] std::size_t size() const noexcept { return size_; }

  /// The kernel reads no more of a list than this (ROBUST_LIST_LIMIT).
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

/// The moments of holding and letting go between which a kill may fall, for tests.
enum class robust_step : unsigned char {
  announced,  ///< the kernel knows that the word is about to change
  written,    ///< the word says whose it is (or, letting go, nobody's)
  woken,      ///< who waited on the old value looks at the new one
  listed,     ///< the word is in the list (or, letting go, no longer is)
  settled,    ///< the announcement is withdrawn
};

/// What tells a peer of our death; destroying it is a goodbye.
class held_life {
 public:
  virtual ~held_life() = default;
};

/// One word of ours in a link's arena, held from `hold` to `release` by the service
/// thread, where all of it is called.
///
/// The kernel follows the list's pointers when the thread ends, so they must not lie
/// where a peer can write: the entry stands in the private page before the arena, as far
/// from the page's start as the word is from the arena's, and so one distance
/// (`entry_distance`) leads from any entry to its word. The word lies in the arena's
/// first page, which must stay mapped until the word was released: at one it cannot read,
/// the kernel stops.
class robust_word final : public held_life {
 public:
  robust_word(robust_words& words, std::byte* in_first_page) noexcept;
  robust_word(const robust_word&) = delete;
  robust_word& operator=(const robust_word&) = delete;
  /// Releases. On another thread than the words' (a forked child, or after that thread
  /// has ended) it leaves the word alone.
  ~robust_word() override { release(); }

  [[nodiscard]] bool is_held() const noexcept { return held_; }

  /// From here on the end of this thread is noticed, whatever ends it. False if it cannot
  /// be: no list, or `robust_words::most` are held already.
  bool hold() noexcept {
    return hold([](robust_step) noexcept {});
  }
  /// A goodbye: the end of this thread is no news any more.
  void release() noexcept {
    release([](robust_step) noexcept {});
  }

  template <class Hook>
  bool hold(Hook&& after) noexcept {
    if (held_) return true;
    if (!words_.is_installed() || !words_.is_mine() || words_.size_ >= words_.most)
      return false;
    // Killed before the word is written: nobody was promised anything. From then on the
    // kernel finds it by the announcement or by the list.
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
    // Killed before the word is cleared: a death. After that: a goodbye, and the kernel
    // wakes the watcher if we did not come to it.
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
  /// Both say whether somebody waits on the word.
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

}  // namespace manyworlds::inline v0::shm
