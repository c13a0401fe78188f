#include "session_floor.hpp"

#include <sched.h>

#include <algorithm>

#include "processes.hpp"
#include "timing.hpp"

namespace mwbench {

session_floor::session_floor(int workers, std::size_t payload_bytes)
    : yields_(workers + 1 > usable_cpus()),
      source_(payload_bytes),
      payload_(payload_bytes),
      places_(std::make_unique<place[]>(static_cast<std::size_t>(workers))) {
  for (int id = 0; id < workers; ++id) threads_.emplace_back([this, id] { work(id); });
}

session_floor::~session_floor() {
  is_over_.store(true);
  for (std::thread& each : threads_) each.join();
}

void session_floor::work(int id) {
  place& own = places_[static_cast<std::size_t>(id)];
  std::vector<std::byte> copy(payload_.size());
  std::uint64_t seen = 0;
  for (;;) {
    while (own.asked.load(std::memory_order_acquire) == seen) {
      if (is_over_.load(std::memory_order_relaxed)) return;
      if (yields_) ::sched_yield();
    }
    ++seen;
    own.entered.store(now_ns(), std::memory_order_relaxed);
    if (has_payload_.load(std::memory_order_relaxed))
      std::ranges::copy(payload_, copy.begin());
    own.answered.store(seen, std::memory_order_release);
  }
}

void session_floor::issue() noexcept {
  ++asked_;
  for (std::size_t id = 0; id < threads_.size(); ++id)
    places_[id].asked.store(asked_, std::memory_order_release);
}

void session_floor::await(int id) const noexcept {
  const place& other = places_[static_cast<std::size_t>(id)];
  while (other.answered.load(std::memory_order_acquire) != asked_) {
    if (yields_) ::sched_yield();
  }
}

void session_floor::await_first() const noexcept { await(0); }

void session_floor::await_all() const noexcept {
  for (std::size_t id = 0; id < threads_.size(); ++id) await(static_cast<int>(id));
}

std::int64_t session_floor::entered() const noexcept {
  std::int64_t last = 0;
  for (std::size_t id = 0; id < threads_.size(); ++id)
    last = std::max(last, places_[id].entered.load(std::memory_order_relaxed));
  return last;
}

void session_floor::write_payload() noexcept {
  std::ranges::copy(source_, payload_.begin());
  has_payload_.store(true, std::memory_order_relaxed);
}

}  // namespace mwbench
