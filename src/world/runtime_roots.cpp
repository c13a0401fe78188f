#include "runtime_roots.hpp"

#include <algorithm>
#include <utility>

namespace manyworlds::inline v0 {

void runtime::roots::add(const std::shared_ptr<started_base>& root) {
  const std::lock_guard lock(mutex_);
  running_.push_back(root);
  root->forget_ = [this, raw = root.get()] { remove(raw); };
  // Under the lock: what is cancelled must have begun, and what ends must be listed.
  root->begin();
  // Those that were there are cancelled already; a later one must not outlast them.
  if (!deadline_ || std::exchange(cancel_.queued, true)) return;
  home_.post(cancel_);
}

bool runtime::roots::empty() const {
  const std::lock_guard lock(mutex_);
  return running_.empty();
}

void runtime::roots::cancel_after(duration drain) {
  {
    const std::lock_guard lock(mutex_);
    const time_point by = later(home_.now(), drain);
    deadline_ = deadline_ ? std::min(*deadline_, by) : by;
    if (std::exchange(cancel_.queued, true)) return;
  }
  home_.post(cancel_);
}

void runtime::roots::begin_cancelling() noexcept {
  time_point by{};
  {
    const std::lock_guard lock(mutex_);
    cancel_.queued = false;
    by = *deadline_;
  }
  if (by <= home_.now()) {
    home_.timers().disarm(drain_timer_);
    cancel_all();
  } else {
    home_.timers().arm(drain_timer_, by);
  }
}

void runtime::roots::cancel_all() noexcept {
  std::vector<std::shared_ptr<started_base>> now;
  {
    const std::lock_guard lock(mutex_);
    now = running_;
  }
  for (const auto& root : now) root->cancel();
}

void runtime::roots::remove(const started_base* root) {
  // Destroyed outside the lock.
  std::shared_ptr<started_base> gone;
  const std::lock_guard lock(mutex_);
  const auto found = std::find_if(running_.begin(), running_.end(),
                                  [&](const auto& r) { return r.get() == root; });
  if (found == running_.end()) return;
  gone = std::move(*found);
  running_.erase(found);
}

void started_base::reap() noexcept {
  const auto alive = shared_from_this();
  collect();
  if (forget_) forget_();
  {
    const std::lock_guard lock(mutex_);
    ended_.store(true, std::memory_order_release);
  }
  changed_.notify_all();
}

}  // namespace manyworlds::inline v0
