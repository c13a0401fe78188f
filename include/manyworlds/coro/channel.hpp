// Channel: values from tasks or threads to tasks, in order, with a limit.
#pragma once

#include <cstddef>
#include <mutex>
#include <optional>
#include <type_traits>
#include <utility>
#include <vector>

#include "manyworlds/detail/assertion.hpp"
#include "manyworlds/detail/channel_waiters.hpp"
#include "manyworlds/detail/native_only.hpp"

namespace manyworlds::inline v0 {

namespace detail {

template <class T>
class channel_push_awaiter;
template <class T>
class channel_pop_awaiter;
template <class T>
class channel_push;
template <class T>
class channel_pop;

}  // namespace detail

/// A first-in first-out queue of at most `capacity` values between any number of
/// producers and consumers, on any threads and homes. Waiters are served in the order
/// they came. With capacity 0 a push ends when its value is taken.
///
///     mw::channel<std::string> prompts(16);
///     co_await prompts.push(request);  // waits while 16 are in
///     prompts.close();
///     while (auto next = co_await prompts.pop()) use(*next);
///
/// Nothing is lost: a push says whether its value went in, and a pop that was given a
/// value when it is cancelled delivers it. Lifetime: destroy it only when no task waits.
///
/// Errors: `push` and `pop` throw std::invalid_argument if the channel was destroyed on
/// their thread while they waited. A closed channel is no error.
template <class T>
class channel {
 public:
  static_assert(std::is_nothrow_move_constructible_v<T>,
                "a value must move between tasks without failing");

  explicit channel(std::size_t capacity) : slots_(capacity) {}
  channel(const channel&) = delete;
  channel& operator=(const channel&) = delete;
  ~channel();

  /// `co_await push(v)` waits for a place. It gives false if the channel is closed,
  /// before or while it waits. If it is cancelled before the value was taken, the value
  /// stays out.
  detail::channel_push<T> push(T&& value) noexcept {
    return detail::channel_push<T>(*this, std::move(value));
  }
  detail::channel_push<T> push(const T& value) {
    return detail::channel_push<T>(*this, T(value));
  }

  /// `co_await pop()` gives the oldest value, or nothing once the channel is closed and
  /// empty.
  detail::channel_pop<T> pop() noexcept { return detail::channel_pop<T>(*this); }

  /// Puts the value in if there is a place now. False leaves it untouched. Thread: any.
  [[nodiscard]] bool try_push(T&& value) noexcept;
  [[nodiscard]] bool try_push(const T& value) {
    T copy(value);
    return try_push(std::move(copy));
  }

  /// Does the same for a caller that holds a lock. The pop that ends by it is added to
  /// `ended`, which the caller resumes (`resume_all`) once it has released the lock.
  [[nodiscard]] bool try_push(T&& value, detail::channel_waiters& ended) noexcept;

  /// Returns the oldest value if there is one now. Thread: any.
  [[nodiscard]] std::optional<T> try_pop() noexcept;

  /// Lets no further value in; what is in can still be popped. Waiting pushes give false,
  /// waiting pops nothing. Thread: any. Idempotent.
  void close() noexcept;

  [[nodiscard]] std::size_t size() const noexcept {
    const std::lock_guard lock(mutex_);
    return size_;
  }
  [[nodiscard]] std::size_t capacity() const noexcept { return slots_.size(); }

 private:
  template <class>
  friend class detail::channel_push_awaiter;
  template <class>
  friend class detail::channel_pop_awaiter;

  // Precondition: the lock is held. The caller resumes `ended` after it has released the
  // lock: from then on the waiter, and even the channel, may be gone.
  bool put(T& value, detail::channel_waiter*& ended) noexcept;
  bool get(std::optional<T>& value, detail::channel_waiter*& ended) noexcept;
  void store(T&& value) noexcept {
    MW_ASSERT(size_ < slots_.size(), "a value is stored only where there is a place");
    slots_[(first_ + size_++) % slots_.size()].emplace(std::move(value));
  }

  mutable std::mutex mutex_;
  std::vector<std::optional<T>> slots_;
  std::size_t first_ = 0;
  std::size_t size_ = 0;
  detail::channel_waiters pushes_;
  detail::channel_waiters pops_;
  bool is_closed_ = false;
};

namespace detail {

template <class T>
class channel_push_awaiter final : public native_only, private channel_waiter {
 public:
  channel_push_awaiter(channel<T>& c, T&& value) noexcept
      : channel_(&c), value_(std::move(value)) {}

  bool await_ready() const noexcept { return false; }
  bool await_start(continuation& k) noexcept;
  bool await_cancel() noexcept {
    if (is_orphan()) return false;
    const std::lock_guard lock(channel_->mutex_);
    return channel_->pushes_.remove(*this);
  }
  bool await_must_resume() const noexcept { return true; }
  bool await_resume() const {
    if (is_orphan()) refuse_destroyed_channel("push");
    return was_taken_;
  }

 private:
  friend channel<T>;
  channel<T>* channel_;
  T value_;
  bool was_taken_ = false;
};

template <class T>
class channel_pop_awaiter final : public native_only, private channel_waiter {
 public:
  explicit channel_pop_awaiter(channel<T>& c) noexcept : channel_(&c) {}

  bool await_ready() const noexcept { return false; }
  bool await_start(continuation& k) noexcept;
  bool await_cancel() noexcept {
    if (is_orphan()) return false;
    const std::lock_guard lock(channel_->mutex_);
    return channel_->pops_.remove(*this);
  }
  bool await_must_resume() const noexcept { return true; }
  std::optional<T> await_resume() {
    if (is_orphan()) refuse_destroyed_channel("pop");
    return std::move(value_);
  }

 private:
  friend channel<T>;
  channel<T>* channel_;
  std::optional<T> value_;
};

template <class T>
class MANYWORLDS_MUST_AWAIT channel_push : public not_for_asio {
 public:
  channel_push(channel<T>& c, T&& value) noexcept
      : channel_(&c), value_(std::move(value)) {}
  channel_push_awaiter<T> operator co_await() && noexcept {
    return channel_push_awaiter<T>(*channel_, std::move(value_));
  }

 private:
  channel<T>* channel_;
  T value_;
};

template <class T>
class MANYWORLDS_MUST_AWAIT channel_pop : public not_for_asio {
 public:
  explicit channel_pop(channel<T>& c) noexcept : channel_(&c) {}
  channel_pop_awaiter<T> operator co_await() const noexcept {
    return channel_pop_awaiter<T>(*channel_);
  }

 private:
  channel<T>* channel_;
};

}  // namespace detail

// --------------------------------------------------------------------------------------

template <class T>
bool channel<T>::put(T& value, detail::channel_waiter*& ended) noexcept {
  if (is_closed_) return false;
  if (detail::channel_waiter* w = pops_.take_first()) {
    MW_ASSERT(size_ == 0, "a pop waits only while the channel is empty");
    static_cast<detail::channel_pop_awaiter<T>*>(w)->value_.emplace(std::move(value));
    ended = w;
    return true;
  }
  if (size_ == slots_.size()) return false;
  store(std::move(value));
  return true;
}

template <class T>
bool channel<T>::get(std::optional<T>& value, detail::channel_waiter*& ended) noexcept {
  if (size_ > 0) {
    std::optional<T>& oldest = slots_[first_];
    MW_ASSERT(oldest.has_value(), "the first slot of a channel with values is full");
    value.emplace(std::move(*oldest));
    oldest.reset();
    first_ = (first_ + 1) % slots_.size();
    --size_;
  }
  if (detail::channel_waiter* w = pushes_.take_first()) {
    MW_ASSERT(size_ + (value ? 1 : 0) == slots_.size(),
              "a push waits only while the channel is full");
    auto& push = *static_cast<detail::channel_push_awaiter<T>*>(w);
    if (value) {
      store(std::move(push.value_));
    } else {
      value.emplace(std::move(push.value_));
    }
    push.was_taken_ = true;
    ended = w;
  }
  return value.has_value();
}

template <class T>
bool channel<T>::try_push(T&& value) noexcept {
  detail::channel_waiter* ended = nullptr;
  bool is_in;
  {
    const std::lock_guard lock(mutex_);
    is_in = put(value, ended);
  }
  if (ended) ended->waiter()->resume();
  return is_in;
}

template <class T>
bool channel<T>::try_push(T&& value, detail::channel_waiters& ended) noexcept {
  detail::channel_waiter* taken = nullptr;
  const std::lock_guard lock(mutex_);
  const bool is_in = put(value, taken);
  if (taken) ended.add_taken(*taken);
  return is_in;
}

template <class T>
std::optional<T> channel<T>::try_pop() noexcept {
  detail::channel_waiter* ended = nullptr;
  std::optional<T> value;
  {
    const std::lock_guard lock(mutex_);
    get(value, ended);
  }
  if (ended) ended->waiter()->resume();
  return value;
}

template <class T>
void channel<T>::close() noexcept {
  detail::channel_waiters ended;
  {
    const std::lock_guard lock(mutex_);
    is_closed_ = true;
    ended.take_all(pops_);
    ended.take_all(pushes_);
  }
  ended.resume_all();
}

template <class T>
channel<T>::~channel() {
  detail::channel_waiters orphans;
  {
    const std::lock_guard lock(mutex_);
    orphans.take_all(pops_);
    orphans.take_all(pushes_);
  }
  orphans.orphan_all();
}

namespace detail {

template <class T>
bool channel_push_awaiter<T>::await_start(continuation& k) noexcept {
  channel_waiter* ended = nullptr;
  {
    const std::lock_guard lock(channel_->mutex_);
    was_taken_ = channel_->put(value_, ended);
    if (!was_taken_ && !channel_->is_closed_) {
      channel_->pushes_.add(*this, k);
      return true;
    }
  }
  if (ended) ended->waiter()->resume();
  return false;
}

template <class T>
bool channel_pop_awaiter<T>::await_start(continuation& k) noexcept {
  channel_waiter* ended = nullptr;
  {
    const std::lock_guard lock(channel_->mutex_);
    if (!channel_->get(value_, ended) && !channel_->is_closed_) {
      channel_->pops_.add(*this, k);
      return true;
    }
  }
  if (ended) ended->waiter()->resume();
  return false;
}

}  // namespace detail

}  // namespace manyworlds::inline v0
