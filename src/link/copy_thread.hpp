// Copy thread: a second thread that reads part of a large payload.
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

#include "link/remote_memory.hpp"
#include "manyworlds/detail/assertion.hpp"

namespace manyworlds::inline v0::detail::shm {

/// A part of a payload for the copy thread. Lifetime: the memory that it is read into
/// must stay until `end` has returned, or `has_ended`.
class copy_job {
 public:
  /// 4 MiB if each has 16 KiB, as pages of a cache often do.
  static constexpr std::size_t most_pieces = 256;

  explicit copy_job(const remote_memory& from) noexcept : from_(from) {}

  std::array<iovec, most_pieces> there;
  std::array<iovec, most_pieces> here;
  std::size_t pieces = 0;
  std::size_t places = 0;
  std::size_t bytes = 0;

  [[nodiscard]] bool has_ended() const noexcept {
    // Acquire: pairs with the release in run(), so that what was read is seen.
    return state_.load(std::memory_order_acquire) == state::ended;
  }
  /// Returns 0 if all its bytes were read, else the errno. Precondition: has_ended().
  [[nodiscard]] int error() const noexcept {
    MW_ASSERT(has_ended(), "only a job that has ended has a result");
    return error_;
  }
  /// Ends the job. If it has begun, this waits for its current slice, some 30 us.
  void end() noexcept;

  /// Called by the copy thread.
  void run() noexcept;

 private:
  enum class state : unsigned char { waiting, running, ended };

  [[nodiscard]] int read_all() noexcept;

  const remote_memory from_;
  std::atomic<state> state_{state::waiting};
  std::atomic<bool> is_unwanted_{false};
  int error_ = 0;
};

/// Reads jobs on a thread that starts with the first one and ends with this object. A
/// runtime has one, shared by its links. Thread: the user reactor.
///
/// It takes one job at a time and queues none: behind a job that waits for the kernel
/// to fetch pages, other worlds would stand still (law 2).
class copy_thread {
 public:
  /// Allows its thread the CPUs that the calling thread may use now, since the reactor
  /// that starts jobs may be pinned to one of them.
  explicit copy_thread(std::string thread_name);
  ~copy_thread();
  copy_thread(const copy_thread&) = delete;
  copy_thread& operator=(const copy_thread&) = delete;

  [[nodiscard]] int cpus() const noexcept { return CPU_COUNT(&allowed_); }
  /// Says that the last job has ended.
  [[nodiscard]] bool is_free() const noexcept { return !last_ || last_->has_ended(); }
  /// Starts a job. Returns false if the copy thread is not free, or if the system gives
  /// no thread. Precondition: the job has bytes.
  [[nodiscard]] bool start(std::shared_ptr<copy_job> job);

 private:
  [[nodiscard]] bool launch();
  [[nodiscard]] cpu_set_t beside_caller() const noexcept;
  void run() noexcept;
  [[nodiscard]] std::shared_ptr<copy_job> next();

  const std::string thread_name_;
  cpu_set_t allowed_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::shared_ptr<copy_job> last_;
  std::shared_ptr<copy_job> next_;  // guarded by mutex_
  std::atomic<bool> has_next_{false};
  bool over_ = false;
  bool refused_ = false;
  std::thread thread_;
};

}  // namespace manyworlds::inline v0::detail::shm
