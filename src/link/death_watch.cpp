#include "link/death_watch.hpp"

#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <system_error>
#include <utility>

#include "manyworlds/detail/assertion.hpp"

namespace manyworlds::inline v0::detail::shm {

death_watch::death_watch(reactor& home, std::string thread_name, remark_function remark)
    : home_(home), thread_name_(std::move(thread_name)), remark_(std::move(remark)) {}

death_watch::~death_watch() = default;

bool death_watch::may_wait() {
  if (std::exchange(asked_, true)) return !refused_;
  // A wait for no futex is an invalid argument where the call is known and allowed.
  ::syscall(SYS_futex_waitv, nullptr, 0, 0, nullptr, CLOCK_MONOTONIC);
  refused_ = errno != EINVAL;
  if (refused_) {
    remark_(std::string("futex_waitv is refused here (") + std::strerror(errno) +
            "): the death of a peer on this host is noticed by its sockets and its "
            "process handle; usual causes: Linux before 5.16, a seccomp filter");
  }
  return !refused_;
}

death_watch::ticket death_watch::add(liveness_futex& futex, std::function<void()> died) {
  if (!may_wait()) return ticket::none;
  const auto t = static_cast<ticket>(++last_ticket_);
  {
    // The watching threads must not run out of memory, so room for all notices is made
    // here.
    const std::lock_guard lock(mutex_);
    dead_.reserve(dead_.size() + watched_.size() + 1);
    delivering_.reserve(dead_.capacity());
  }
  const auto entry = watched_.emplace(t, watched{nullptr, std::move(died)}).first;
  try {
    entry->second.where = &place(futex, t);
  } catch (const std::system_error& e) {
    watched_.erase(entry);
    remark_(std::string("no thread to notice the death of peers with: ") + e.what());
    return ticket::none;
  }
  return t;
}

liveness_waiter& death_watch::place(liveness_futex& futex, ticket t) {
  const auto key = static_cast<std::uint64_t>(t);
  for (const auto& w : waiters_) {
    if (w->add(futex, key)) return *w;
  }
  const auto died = [this](std::uint64_t k) { tell(static_cast<ticket>(k)); };
  waiters_.push_back(std::make_unique<liveness_waiter>(thread_name_, died, remark_));
  // A new waiter has room.
  static_cast<void>(waiters_.back()->add(futex, key));
  return *waiters_.back();
}

void death_watch::remove(ticket t) noexcept {
  const auto found = watched_.find(t);
  if (found == watched_.end()) return;
  found->second.where->remove(static_cast<std::uint64_t>(t));
  watched_.erase(found);
}

void death_watch::tell(ticket t) noexcept {
  {
    const std::lock_guard lock(mutex_);
    MW_ASSERT(dead_.size() < dead_.capacity(), "a watching thread allocates nothing");
    dead_.push_back(t);
    if (std::exchange(posted_, true)) return;
  }
  home_.post(delivery_);
}

void death_watch::deliver() noexcept {
  {
    MW_ASSERT(delivering_.empty(), "deaths are delivered one round at a time");
    const std::lock_guard lock(mutex_);
    std::swap(dead_, delivering_);
    posted_ = false;
  }
  // By index: `died` may add, which may move the elements.
  for (std::size_t i = 0; i < delivering_.size(); ++i) {
    const auto found = watched_.find(delivering_[i]);
    if (found == watched_.end()) continue;
    // Moved, since `died` may remove itself.
    const auto died = std::move(found->second.died);
    died();
  }
  delivering_.clear();
}

std::uint64_t death_watch::polls() const noexcept {
  std::uint64_t all = 0;
  for (const auto& w : waiters_) all += w->polls();
  return all;
}

}  // namespace manyworlds::inline v0::detail::shm
