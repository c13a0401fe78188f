// Store thread: an executor on a thread of its own, for stores that use calls which may
// block.
#pragma once

#include <mutex>
#include <string>
#include <thread>

#include "manyworlds/coro/executor.hpp"

namespace manyworlds::inline v0::detail {

/// What a store's thread sleeps in, and what it looks at when it wakes.
class store_sleep {
 public:
  /// Sleeps for at most this time, or until `wake`, and handles what has come. It returns
  /// soon if `at_most` is zero. Thread: the store's.
  virtual void sleep(duration at_most) noexcept = 0;
  /// Ends a sleep, the next one if there is none now. Thread: any.
  virtual void wake() noexcept = 0;

 protected:
  ~store_sleep() = default;
};

/// Runs tasks on one named thread, on which all signals are blocked. The destructor runs
/// the work that was posted before, and joins. Thread: it must not be destroyed on its
/// own. Precondition: no task of it is left then.
class store_thread final : public executor {
 public:
  /// Lifetime: `sleep` outlives this. Errors: std::system_error if there can be no other
  /// thread.
  store_thread(const std::string& name, store_sleep& sleep);
  ~store_thread() override;

  void schedule(work& w) noexcept override { ready_.push(w); }
  void post(work& w) noexcept override;
  [[nodiscard]] time_point now() const noexcept override;

 private:
  /// The longest sleep; nothing depends on it.
  static constexpr duration longest_sleep = std::chrono::seconds(60);
  static constexpr std::size_t timers_per_turn = 64;

  void run() noexcept;
  void turn() noexcept;
  [[nodiscard]] duration pause() noexcept;

  store_sleep& sleep_;
  work_queue ready_;
  std::mutex mutex_;
  work_queue posted_;  // guarded by mutex_, as is this
  bool is_ending_ = false;
  // The thread comes last: it uses the other members from its start.
  std::thread thread_;
};

}  // namespace manyworlds::inline v0::detail
