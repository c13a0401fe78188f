#include "link/liveness_futex.hpp"

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

void wake_all(liveness_futex& futex) noexcept {
  // This is not the private kind, since the waiter is another process.
  ::syscall(SYS_futex, reinterpret_cast<std::uint32_t*>(&futex), FUTEX_WAKE, INT_MAX,
            nullptr, nullptr, 0);
}

robust_futex_list::robust_futex_list() noexcept : thread_(::gettid()) {
  head_.list.next = &head_.list;
  head_.futex_offset = static_cast<long>(entry_distance);
  std::size_t length = 0;
  // If a filter refuses this, there is nothing to restore.
  if (::syscall(SYS_get_robust_list, 0, &before_, &length) != 0) before_ = nullptr;
  in_this_order();
  installed_ = set_list(&head_);
}

robust_futex_list::~robust_futex_list() {
  if (installed_ && is_mine()) set_list(before_);
}

bool robust_futex_list::is_mine() const noexcept { return ::gettid() == thread_; }

held_futex::held_futex(robust_futex_list& list, std::byte* in_first_page) noexcept
    : list_(list),
      futex_(*reinterpret_cast<liveness_futex*>(in_first_page)),
      entry_(*reinterpret_cast<::robust_list*>(in_first_page - entry_distance)) {}

void held_futex::announce() noexcept {
  in_this_order();
  MW_ASSERT(!list_.head_.list_op_pending, "one futex changes at a time");
  list_.head_.list_op_pending = &entry_;
  in_this_order();
}

bool held_futex::write_self() noexcept {
  const auto self = static_cast<std::uint32_t>(list_.thread_);
  // A waiter already waits on the old value. Its bit must be kept in the new one, or
  // the kernel wakes no waiter. A peer that keeps changing the futex gets the plain
  // value, and may miss our death.
  std::uint32_t seen = futex_.load(std::memory_order_relaxed);
  bool written = false;
  for (int attempt = 0; attempt < 64 && !written; ++attempt) {
    written = futex_.compare_exchange_weak(seen, self | (seen & FUTEX_WAITERS),
                                           std::memory_order_relaxed);
  }
  if (!written) seen = futex_.exchange(self, std::memory_order_relaxed);
  return (seen & FUTEX_WAITERS) != 0;
}

void held_futex::enter() noexcept {
  MW_ASSERT(!held_ && !next_ && !previous_, "a futex that is entered is in no list");
  MW_ASSERT(list_.size_ < robust_futex_list::most, "the kernel reads a limited list");
  entry_.next = list_.head_.list.next;
  next_ = list_.first_;
  if (next_) next_->previous_ = this;
  in_this_order();
  list_.head_.list.next = &entry_;
  list_.first_ = this;
  ++list_.size_;
  held_ = true;
}

void held_futex::leave() noexcept {
  MW_ASSERT(held_ && list_.size_ > 0, "a futex that leaves is in the list");
  MW_ASSERT(previous_ ? previous_->next_ == this : list_.first_ == this,
            "the list leads to its futex");
  MW_ASSERT(!next_ || next_->previous_ == this, "the list leads back to its futex");
  (previous_ ? previous_->entry_.next : list_.head_.list.next) = entry_.next;
  (previous_ ? previous_->next_ : list_.first_) = next_;
  if (next_) next_->previous_ = previous_;
  next_ = previous_ = nullptr;
  --list_.size_;
  held_ = false;
}

bool held_futex::clear() noexcept {
  in_this_order();
  const std::uint32_t seen = futex_.exchange(0, std::memory_order_relaxed);
  return (seen & FUTEX_WAITERS) != 0;
}

void held_futex::finish() noexcept {
  in_this_order();
  MW_ASSERT(list_.head_.list_op_pending == &entry_, "an announced change is finished");
  list_.head_.list_op_pending = nullptr;
  in_this_order();
}

}  // namespace manyworlds::inline v0::detail::shm
