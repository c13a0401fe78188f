#include "occupancy.hpp"

#include "settings.hpp"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <map>
#include <mutex>

namespace nccl_emulation {

namespace {

struct multiprocessors {
  std::mutex guard;
  std::condition_variable freed;
  std::map<int, int> used;
};

multiprocessors& all() {
  static auto* only = new multiprocessors;
  return *only;
}

}  // namespace

occupancy::occupancy(int device, int ctas, const abort_flag& flag) : device_(device) {
  // An abort does not know who waits here, so the flag is looked at now and then.
  constexpr auto glance = std::chrono::milliseconds{2};
  const int limit = chosen().multiprocessors;
  const int wanted = std::clamp(ctas, 1, limit);
  std::unique_lock lock{all().guard};
  auto& used = all().used[device];
  while (used + wanted > limit) {
    if (flag.raised()) return;
    all().freed.wait_for(lock, glance);
  }
  used += wanted;
  taken_ = wanted;
}

occupancy::~occupancy() {
  if (taken_ == 0) return;
  std::lock_guard lock{all().guard};
  all().used[device_] -= taken_;
  all().freed.notify_all();
}

}  // namespace nccl_emulation
