#include "driver_lock.hpp"

#include <algorithm>
#include <cstddef>
#include <mutex>
#include <utility>
#include <vector>

#include "settings.hpp"

namespace emulated {
namespace {

bool has_lock() { return chosen().has_driver_lock; }

std::mutex& lock_of(int device) {
  // Never destroyed: threads of the process may be inside when it ends.
  static auto& all = *new std::vector<std::mutex>(
      static_cast<std::size_t>(std::max(chosen().devices, 1)));
  return all[static_cast<std::size_t>(device)];
}

struct held_by_thread {
  int depth = 0;
  int device = 0;
  bool is_kept = false;
};

held_by_thread& mine() {
  thread_local held_by_thread of_this_thread;
  return of_this_thread;
}

}  // namespace

driver_lock::driver_lock(int device) {
  if (!has_lock() || mine().depth++ != 0) return;
  mine().device = device;
  lock_of(device).lock();
}

driver_lock::~driver_lock() {
  if (has_lock() && --mine().depth == 0) lock_of(mine().device).unlock();
}

driver_unlocked::driver_unlocked() {
  if (!has_lock() || mine().depth == 0 || mine().is_kept) return;
  depth_ = std::exchange(mine().depth, 0);
  lock_of(mine().device).unlock();
}

driver_unlocked::~driver_unlocked() {
  if (depth_ == 0) return;
  lock_of(mine().device).lock();
  mine().depth = depth_;
}

driver_lock_kept::driver_lock_kept() { mine().is_kept = true; }
driver_lock_kept::~driver_lock_kept() { mine().is_kept = false; }

}  // namespace emulated
