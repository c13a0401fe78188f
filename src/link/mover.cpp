#include "mover.hpp"

#include <pthread.h>

#include <cerrno>
#include <chrono>
#include <system_error>
#include <utility>

#include "../io/signals_blocked.hpp"

namespace manyworlds::inline v0::shm {

namespace {

/// The next slice of a payload comes this soon after the last, or not at all; a thread
/// that sleeps takes about as long to wake.
constexpr std::chrono::microseconds looks_on(100);

}  // namespace

void move_job::end() noexcept {
  state expected = state::waiting;
  if (state_.compare_exchange_strong(expected, state::ended, std::memory_order_acq_rel)) {
    error_ = ECANCELED;
    return;
  }
  while (!has_ended()) std::this_thread::yield();
}

void move_job::run() noexcept {
  state expected = state::waiting;
  if (!state_.compare_exchange_strong(expected, state::running,
                                      std::memory_order_acq_rel)) {
    return;
  }
  const ssize_t got =
      from_.read(std::span(here).first(places), std::span(there).first(pieces));
  if (got < 0) {
    error_ = errno;
  } else if (static_cast<std::size_t>(got) != bytes) {
    error_ = EFAULT;
  }
  state_.store(state::ended, std::memory_order_release);
}

mover::mover(std::string thread_name) : thread_name_(std::move(thread_name)) {
  CPU_ZERO(&allowed_);
  if (::sched_getaffinity(0, sizeof allowed_, &allowed_) != 0) CPU_ZERO(&allowed_);
}

mover::~mover() {
  {
    const std::lock_guard lock(mutex_);
    over_ = true;
  }
  changed_.notify_one();
  if (thread_.joinable()) thread_.join();
}

bool mover::launch() {
  if (thread_.joinable()) return true;
  if (refused_) return false;
  const signals_blocked while_starting;
  try {
    thread_ = std::thread([this] { run(); });
  } catch (const std::system_error&) {
    refused_ = true;
    return false;
  }
  ::pthread_setname_np(thread_.native_handle(), thread_name_.substr(0, 15).c_str());
  ::pthread_setaffinity_np(thread_.native_handle(), sizeof allowed_, &allowed_);
  return true;
}

bool mover::start(std::shared_ptr<move_job> job) {
  {
    const std::lock_guard lock(mutex_);
    if (!launch()) return false;
    jobs_.push_back(std::move(job));
    count_.store(jobs_.size(), std::memory_order_relaxed);
  }
  changed_.notify_one();
  return true;
}

void mover::run() noexcept {
  while (const auto job = next()) {
    job->run();
    const auto until = std::chrono::steady_clock::now() + looks_on;
    while (count_.load(std::memory_order_relaxed) == 0 &&
           std::chrono::steady_clock::now() < until) {
      std::this_thread::yield();
    }
  }
}

std::shared_ptr<move_job> mover::next() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return over_ || !jobs_.empty(); });
  if (over_) return nullptr;
  std::shared_ptr<move_job> job = std::move(jobs_.front());
  jobs_.pop_front();
  count_.store(jobs_.size(), std::memory_order_relaxed);
  return job;
}

}  // namespace manyworlds::inline v0::shm
