// Mover: a second thread that reads part of what is large.
#pragma once

#include <sched.h>
#include <sys/uio.h>

#include <array>
#include <atomic>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <thread>

#include "remote_memory.hpp"

namespace manyworlds::inline v0::shm {

/// Part of a payload for the mover. Whoever made it must not let go of the memory that it
/// is read into before `end` has returned, or `has_ended`.
class move_job {
 public:
  /// Of 16 KiB, as pages of a cache often are, 4 MiB.
  static constexpr std::size_t most_pieces = 256;

  explicit move_job(const remote_memory& from) noexcept : from_(from) {}

  std::array<iovec, most_pieces> there;
  std::array<iovec, most_pieces> here;
  std::size_t pieces = 0;
  std::size_t places = 0;
  std::size_t bytes = 0;

  [[nodiscard]] bool has_ended() const noexcept {
    // Acquire: pairs with the release in run(), and what was read is seen.
    return state_.load(std::memory_order_acquire) == state::ended;
  }
  /// After it has ended: 0 if all its bytes were read, else the errno.
  [[nodiscard]] int error() const noexcept { return error_; }
  /// It reads no more; if it has begun, the slice that it is at is waited for, some 30
  /// us.
  void end() noexcept;

  /// By the mover.
  void run() noexcept;

 private:
  enum class state : unsigned char { waiting, running, ended };

  [[nodiscard]] int read_all() noexcept;

  const remote_memory from_;
  std::atomic<state> state_{state::waiting};
  std::atomic<bool> is_unwanted_{false};
  int error_ = 0;
};

/// One for a runtime, shared by its links, on the reactor of its user. Its thread is
/// started with the first job, does nothing but that, and ends with the mover.
///
/// One job at a time and none waits: behind one whose pages the kernel has to fetch,
/// other worlds would stand still (law 2).
class mover {
 public:
  /// It may use the CPUs that the calling thread may use now: whoever hands over a job
  /// may be pinned to one of them.
  explicit mover(std::string thread_name);
  ~mover();
  mover(const mover&) = delete;
  mover& operator=(const mover&) = delete;

  [[nodiscard]] int cpus() const noexcept { return CPU_COUNT(&allowed_); }
  /// The last job has ended.
  [[nodiscard]] bool is_free() const noexcept { return !last_ || last_->has_ended(); }
  /// False: it is not free, or there is no thread to be had.
  [[nodiscard]] bool start(std::shared_ptr<move_job> job);

 private:
  [[nodiscard]] bool launch();
  [[nodiscard]] cpu_set_t beside_caller() const noexcept;
  void run() noexcept;
  [[nodiscard]] std::shared_ptr<move_job> next();

  const std::string thread_name_;
  cpu_set_t allowed_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::shared_ptr<move_job> last_;
  std::shared_ptr<move_job> next_;  // guarded by mutex_
  std::atomic<bool> has_next_{false};
  bool over_ = false;
  bool refused_ = false;
  std::thread thread_;
};

}  // namespace manyworlds::inline v0::shm
