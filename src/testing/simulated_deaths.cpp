#include "testing/simulated_deaths.hpp"

#include <sys/mman.h>

#include <exception>
#include <utility>
#include <vector>

namespace manyworlds::inline v0::detail::shm {

namespace {
/// Stands for the id of a thread.
constexpr std::uint32_t some_thread = 1;

bool says_dead(const liveness_futex& futex) noexcept {
  return (futex.load(std::memory_order_relaxed) & FUTEX_OWNER_DIED) != 0;
}
}  // namespace

simulated_liveness::simulated_liveness(simulated_process& self, shm_segment& segment)
    : self_(self),
      segment_(segment),
      futex_(*reinterpret_cast<liveness_futex*>(
          segment.at(offset::liveness(segment.side())))) {
  futex_.store(some_thread, std::memory_order_relaxed);
  simulated_kernel::add_resident(self_, *this);
}

simulated_liveness::~simulated_liveness() {
  simulated_kernel::remove_resident(self_, *this);
  // A dead process says no goodbye.
  if (!self_.is_dead()) futex_.store(0, std::memory_order_relaxed);
}

void simulated_liveness::killed() noexcept {
  futex_.fetch_or(FUTEX_OWNER_DIED, std::memory_order_relaxed);
  // A dead process writes nothing, so its objects get a private copy until they have
  // ended.
  void* const own =
      ::mmap(segment_.at(0), segment_bytes, PROT_READ | PROT_WRITE,
             MAP_PRIVATE | MAP_FIXED | MAP_NORESERVE, segment_.descriptor(), 0);
  // The old mapping may be gone then.
  if (own == MAP_FAILED) std::terminate();
}

simulated_deaths::simulated_deaths(simulated_process& self, reactor& home)
    : self_(self), home_(home) {
  simulated_kernel::add_resident(self_, *this);
}

simulated_deaths::~simulated_deaths() { simulated_kernel::remove_resident(self_, *this); }

death_notices::ticket simulated_deaths::add(liveness_futex& futex,
                                            std::function<void()> died) {
  const auto t = static_cast<ticket>(++last_ticket_);
  watched_.emplace(t, watched{&futex, std::move(died)});
  if (says_dead(futex)) process_killed();
  return t;
}

void simulated_deaths::process_killed() noexcept {
  if (!std::exchange(poll_is_posted_, true)) home_.post(poll_);
}

void simulated_deaths::poll() noexcept {
  poll_is_posted_ = false;
  std::vector<ticket> dead;
  for (const auto& [t, w] : watched_) {
    if (w.died && says_dead(*w.futex)) dead.push_back(t);
  }
  for (const ticket t : dead) {
    const auto found = watched_.find(t);
    if (found == watched_.end()) continue;
    // Moved, since `died` may remove itself.
    const auto died = std::exchange(found->second.died, nullptr);
    died();
  }
}

}  // namespace manyworlds::inline v0::detail::shm
