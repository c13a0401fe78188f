#include "driver_lock.hpp"

#include <mutex>
#include <utility>

#include "settings.hpp"

namespace emulated {
namespace {

bool has_lock() { return chosen().has_driver_lock; }

std::mutex& only_lock() {
  // Threads of the process may be inside when it ends.
  static auto& only = *new std::mutex;
  return only;
}

struct held_by_thread {
  int depth = 0;
  bool is_kept = false;
};

held_by_thread& mine() {
  thread_local held_by_thread of_this_thread;
  return of_this_thread;
}

}  // namespace

driver_lock::driver_lock() {
  if (has_lock() && mine().depth++ == 0) only_lock().lock();
}

driver_lock::~driver_lock() {
  if (has_lock() && --mine().depth == 0) only_lock().unlock();
}

driver_unlocked::driver_unlocked() {
  if (!has_lock() || mine().depth == 0 || mine().is_kept) return;
  depth_ = std::exchange(mine().depth, 0);
  only_lock().unlock();
}

driver_unlocked::~driver_unlocked() {
  if (depth_ == 0) return;
  only_lock().lock();
  mine().depth = depth_;
}

driver_lock_kept::driver_lock_kept() { mine().is_kept = true; }
driver_lock_kept::~driver_lock_kept() { mine().is_kept = false; }

}  // namespace emulated
