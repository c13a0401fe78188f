#include "occupancy.hpp"

#include "settings.hpp"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <map>
#include <mutex>
#include <numeric>

namespace nccl_emulation {

namespace {

// An H100 has GPCs of 16 and 18.
constexpr int gpc_size = 16;

struct multiprocessors {
  std::mutex guard;
  std::condition_variable freed;
  std::map<int, std::vector<int>> unused;  // of each GPC
  std::map<int, int> most_used;

  std::vector<int>& of(int device) {
    auto& gpcs = unused[device];
    if (!gpcs.empty()) return gpcs;
    for (int left = chosen().multiprocessors; left > 0; left -= gpc_size)
      gpcs.push_back(std::min(left, gpc_size));
    return gpcs;
  }
};

multiprocessors& all() {
  static auto* only = new multiprocessors;
  return *only;
}

// What to take of each GPC; empty if it does not fit. As evenly as it goes, which is the
// spread that NCCL asks for.
std::vector<int> fit(std::vector<int> unused, int ctas, int cluster) {
  const int together = cluster > 0 && ctas % cluster == 0 ? cluster : 1;
  std::vector<int> taken(unused.size());
  for (int left = ctas; left > 0; left -= together) {
    const auto roomiest = std::max_element(unused.begin(), unused.end());
    if (*roomiest < together) return {};
    *roomiest -= together;
    taken[static_cast<std::size_t>(roomiest - unused.begin())] += together;
  }
  return taken;
}

}  // namespace

occupancy::occupancy(int device, int ctas, int cluster, const abort_flag& flag)
    : device_(device) {
  // An abort does not know who waits here, so the flag is looked at now and then.
  constexpr auto glance = std::chrono::milliseconds{2};
  const int wanted = std::clamp(ctas, 1, chosen().multiprocessors);
  std::unique_lock lock{all().guard};
  auto& unused = all().of(device);
  while ((taken_ = fit(unused, wanted, cluster)).empty()) {
    if (flag.raised()) return;
    all().freed.wait_for(lock, glance);
  }
  for (std::size_t i = 0; i < taken_.size(); ++i) unused[i] -= taken_[i];
  const int used =
      chosen().multiprocessors - std::accumulate(unused.begin(), unused.end(), 0);
  all().most_used[device] = std::max(all().most_used[device], used);
}

occupancy::~occupancy() {
  if (taken_.empty()) return;
  std::lock_guard lock{all().guard};
  auto& unused = all().of(device_);
  for (std::size_t i = 0; i < taken_.size(); ++i) unused[i] += taken_[i];
  all().freed.notify_all();
}

}  // namespace nccl_emulation

// For tests alone: the most of the device's multiprocessors that were ever occupied.
extern "C" __attribute__((visibility("default"))) int ncclEmulatedMostOccupied(
    int device) {
  using nccl_emulation::all;
  std::lock_guard lock{all().guard};
  return all().most_used[device];
}
