#include "store/store_thread.hpp"

#include <pthread.h>

#include <algorithm>
#include <chrono>

#include "io/signals_blocked.hpp"
#include "manyworlds/detail/assertion.hpp"

namespace manyworlds::inline v0::detail {

namespace {

std::thread started_without_signals(const std::string& name, auto body) {
  // TLS writes without MSG_NOSIGNAL: SIGPIPE stays blocked here (law 12).
  const signals_blocked blocked;
  std::thread started(body);
  pthread_setname_np(started.native_handle(), name.substr(0, 15).c_str());
  return started;
}

}  // namespace

store_thread::store_thread(const std::string& name, store_sleep& sleep)
    : sleep_(sleep), thread_(started_without_signals(name, [this] { run(); })) {}

store_thread::~store_thread() {
  MW_ASSERT(!is_current(), "a store's thread is not destroyed on itself");
  {
    const std::lock_guard lock(mutex_);
    is_ending_ = true;
    sleep_.wake();
  }
  thread_.join();
}

void store_thread::post(work& w) noexcept {
  const std::lock_guard lock(mutex_);
  posted_.push(w);
  // Under the lock: the work may lead to the destruction of this object.
  sleep_.wake();
}

time_point store_thread::now() const noexcept { return std::chrono::steady_clock::now(); }

void store_thread::run() noexcept {
  const turn_scope here(*this);
  for (;;) {
    {
      const std::lock_guard lock(mutex_);
      ready_.append(posted_);
      if (is_ending_ && ready_.empty()) return;
    }
    turn();
    sleep_.sleep(pause());
  }
}

void store_thread::turn() noexcept {
  work_queue batch;
  batch.append(ready_);
  while (work* w = batch.pop()) w->run();
  timers().expire(now(), timers_per_turn);
}

duration store_thread::pause() noexcept {
  {
    const std::lock_guard lock(mutex_);
    if (!ready_.empty() || !posted_.empty() || is_ending_) return duration::zero();
  }
  const auto next = timers().next();
  if (!next) return longest_sleep;
  return std::clamp(*next - now(), duration::zero(), longest_sleep);
}

}  // namespace manyworlds::inline v0::detail
