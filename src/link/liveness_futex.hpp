// Liveness futex: a word in shared memory by which the kernel reports our death to a
// peer.
#pragma once

#include <linux/futex.h>
#include <sys/types.h>

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace manyworlds::inline v0::detail::shm {

/// The futex that a peer waits on. It is 0 (not held yet, or released in order), or the
/// id of the thread that holds it, with FUTEX_WAITERS once a peer waits. The kernel
/// sets FUTEX_OWNER_DIED when the holding thread has ended, before it tears down the
/// process's memory.
using liveness_futex = std::atomic<std::uint32_t>;
static_assert(sizeof(liveness_futex) == 4 && liveness_futex::is_always_lock_free);

/// The distance from an entry to its futex behind it: a page of the segment.
inline constexpr std::size_t entry_distance = 4096;

/// Wakes every waiter on the futex, in any process.
void wake_all(liveness_futex& futex) noexcept;

/// The robust list of the calling thread: the futexes that it holds, in the form that the
/// kernel reads when the thread ends.
///
/// A thread has one such list, and this one replaces glibc's. Precondition: no robust
/// pthread mutex is locked on the thread meanwhile. Lifetime: made on the service
/// thread; destroyed there, which restores glibc's list, or after that thread has
/// ended.
class robust_futex_list {
 public:
  robust_futex_list() noexcept;
  robust_futex_list(const robust_futex_list&) = delete;
  robust_futex_list& operator=(const robust_futex_list&) = delete;
  ~robust_futex_list();

  /// Says that the kernel takes the list. Where it does not, nothing can be held.
  [[nodiscard]] bool is_installed() const noexcept { return installed_; }
  /// Says that the caller is the thread of this list, which a forked child is not.
  [[nodiscard]] bool is_mine() const noexcept;
  [[nodiscard]] std::size_t size() const noexcept { return size_; }

  /// The kernel reads at most this many entries of a list (ROBUST_LIST_LIMIT).
  static constexpr std::size_t most = 2048;

 private:
  friend class held_futex;

  ::robust_list_head head_{};
  ::robust_list_head* before_ = nullptr;
  class held_futex* first_ = nullptr;
  std::size_t size_ = 0;
  pid_t thread_;
  bool installed_ = false;
};

/// The steps of holding and releasing a futex, between which tests kill.
enum class hold_step : unsigned char {
  announced,  ///< the kernel knows that the futex is about to change
  written,    ///< the futex names its holder (when releasing: none)
  woken,      ///< the waiters on the old value look at the new one
  listed,     ///< the futex is in the list (when releasing: no longer)
  finished,   ///< the announcement is withdrawn
};

/// Reports our death to a peer; destroying it is a goodbye.
class held_liveness {
 public:
  virtual ~held_liveness() = default;
};

/// One futex of ours in a link's segment, held from `hold` to `release`. Thread: the
/// service thread.
///
/// The kernel follows the list's pointers when the thread ends, so they must not lie
/// where a peer can write. The entry stands in the private page before the segment, at
/// the same offset as the futex in the segment. So one distance (`entry_distance`) leads
/// from any entry to its futex. Lifetime: the futex lies in the segment's first page,
/// which must stay mapped until the release, since the kernel stops at a futex that it
/// cannot read.
class held_futex final : public held_liveness {
 public:
  held_futex(robust_futex_list& list, std::byte* in_first_page) noexcept;
  held_futex(const held_futex&) = delete;
  held_futex& operator=(const held_futex&) = delete;
  /// Releases the futex. It leaves the futex alone on another thread than that of the
  /// list: in a forked child, or after that thread has ended.
  ~held_futex() override { release(); }

  [[nodiscard]] bool is_held() const noexcept { return held_; }

  /// Holds the futex: from here on the peer notices the end of this thread, no matter
  /// what ends it. Returns false without a list, or if `robust_futex_list::most` are held
  /// already.
  bool hold() noexcept {
    return hold([](hold_step) noexcept {});
  }
  /// Releases the futex as a goodbye: the end of this thread is no longer reported.
  void release() noexcept {
    release([](hold_step) noexcept {});
  }

  template <class Hook>
  bool hold(Hook&& after) noexcept {
    if (held_) return true;
    if (!list_.is_installed() || !list_.is_mine() || list_.size_ >= list_.most)
      return false;
    // A kill before the futex is written breaks no promise. From then on the kernel
    // finds the futex by the announcement or by the list.
    announce();
    after(hold_step::announced);
    const bool awaited = write_self();
    after(hold_step::written);
    if (awaited) wake_all(futex_);
    after(hold_step::woken);
    enter();
    after(hold_step::listed);
    finish();
    after(hold_step::finished);
    return true;
  }

  template <class Hook>
  void release(Hook&& after) noexcept {
    if (!held_ || !list_.is_mine()) return;
    // A kill before the futex is cleared is a death. After that it is a goodbye, and the
    // kernel wakes the waiter if we did not.
    announce();
    after(hold_step::announced);
    leave();
    after(hold_step::listed);
    const bool awaited = clear();
    after(hold_step::written);
    if (awaited) wake_all(futex_);
    after(hold_step::woken);
    finish();
    after(hold_step::finished);
  }

 private:
  void announce() noexcept;
  /// Both return whether a waiter waits on the futex.
  bool write_self() noexcept;
  bool clear() noexcept;
  void enter() noexcept;
  void leave() noexcept;
  void finish() noexcept;

  robust_futex_list& list_;
  liveness_futex& futex_;
  ::robust_list& entry_;
  held_futex* next_ = nullptr;
  held_futex* previous_ = nullptr;
  bool held_ = false;
};

}  // namespace manyworlds::inline v0::detail::shm
