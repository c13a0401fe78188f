#include "link/robust_word.hpp"

#include <sys/syscall.h>
#include <unistd.h>

#include <climits>

#include "manyworlds/detail/assertion.hpp"

namespace manyworlds::inline v0::detail::shm {

namespace {

/// Keeps the compiler from reordering. The kernel reads the list as the thread left it,
/// in the order of the instructions.
void in_this_order() noexcept { std::atomic_signal_fence(std::memory_order_seq_cst); }

bool set_list(::robust_list_head* head) noexcept {
  return ::syscall(SYS_set_robust_list, head, sizeof *head) == 0;
}

}  // namespace

void wake_all(life_word& word) noexcept {
  // This is not the private kind, since the watcher is another process.
  ::syscall(SYS_futex, reinterpret_cast<std::uint32_t*>(&word), FUTEX_WAKE, INT_MAX,
            nullptr, nullptr, 0);
}

robust_words::robust_words() noexcept : thread_(::gettid()) {
  head_.list.next = &head_.list;
  head_.futex_offset = static_cast<long>(entry_distance);
  std::size_t length = 0;
  // If a filter refuses this, there is nothing to restore.
  if (::syscall(SYS_get_robust_list, 0, &before_, &length) != 0) before_ = nullptr;
  in_this_order();
  installed_ = set_list(&head_);
}

robust_words::~robust_words() {
  if (installed_ && is_mine()) set_list(before_);
}

bool robust_words::is_mine() const noexcept { return ::gettid() == thread_; }

robust_word::robust_word(robust_words& words, std::byte* in_first_page) noexcept
    : words_(words),
      word_(*reinterpret_cast<life_word*>(in_first_page)),
      entry_(*reinterpret_cast<::robust_list*>(in_first_page - entry_distance)) {}

void robust_word::announce() noexcept {
  in_this_order();
  MW_ASSERT(!words_.head_.list_op_pending, "one word changes at a time");
  words_.head_.list_op_pending = &entry_;
  in_this_order();
}

bool robust_word::write_self() noexcept {
  const auto self = static_cast<std::uint32_t>(words_.thread_);
  // A watcher already waits on the old value. Its bit must be kept in the new one, or
  // the kernel wakes no watcher. A peer that keeps changing the word gets the plain
  // value, and may miss our death.
  std::uint32_t seen = word_.load(std::memory_order_relaxed);
  bool written = false;
  for (int attempt = 0; attempt < 64 && !written; ++attempt) {
    written = word_.compare_exchange_weak(seen, self | (seen & FUTEX_WAITERS),
                                          std::memory_order_relaxed);
  }
  if (!written) seen = word_.exchange(self, std::memory_order_relaxed);
  return (seen & FUTEX_WAITERS) != 0;
}

void robust_word::enter() noexcept {
  MW_ASSERT(!held_ && !next_ && !previous_, "a word that is entered is in no list");
  MW_ASSERT(words_.size_ < robust_words::most, "the kernel reads a limited list");
  entry_.next = words_.head_.list.next;
  next_ = words_.first_;
  if (next_) next_->previous_ = this;
  in_this_order();
  words_.head_.list.next = &entry_;
  words_.first_ = this;
  ++words_.size_;
  held_ = true;
}

void robust_word::leave() noexcept {
  MW_ASSERT(held_ && words_.size_ > 0, "a word that leaves is in the list");
  MW_ASSERT(previous_ ? previous_->next_ == this : words_.first_ == this,
            "the list leads to its word");
  MW_ASSERT(!next_ || next_->previous_ == this, "the list leads back to its word");
  (previous_ ? previous_->entry_.next : words_.head_.list.next) = entry_.next;
  (previous_ ? previous_->next_ : words_.first_) = next_;
  if (next_) next_->previous_ = previous_;
  next_ = previous_ = nullptr;
  --words_.size_;
  held_ = false;
}

bool robust_word::clear() noexcept {
  in_this_order();
  const std::uint32_t seen = word_.exchange(0, std::memory_order_relaxed);
  return (seen & FUTEX_WAITERS) != 0;
}

void robust_word::settle() noexcept {
  in_this_order();
  MW_ASSERT(words_.head_.list_op_pending == &entry_, "an announced change settles");
  words_.head_.list_op_pending = nullptr;
  in_this_order();
}

}  // namespace manyworlds::inline v0::detail::shm
