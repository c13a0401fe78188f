// Worker thread: a named thread that runs work from any thread.
#pragma once

#include <pthread.h>

#include <condition_variable>
#include <mutex>
#include <string>
#include <thread>

#include "manyworlds/detail/work.hpp"

namespace manyworlds::inline v0 {

/// Runs work first-in first-out, for functions that block or compute: see `offload`. The
/// destructor runs the work that was posted before, and joins. It must not be called on
/// the thread itself.
///
///     mw::worker_thread disk("disk");
///     const auto bytes = co_await mw::offload(disk, [&] { return read_file(path); });
///     use(bytes);  // on the reactor again
class worker_thread {
 public:
  /// Starts the thread. The system shows the first 15 characters of the name. Errors:
  /// std::system_error if there can be no other thread.
  explicit worker_thread(const std::string& name = "mw-worker")
      : thread_([this] { run(); }) {
    pthread_setname_np(thread_.native_handle(), name.substr(0, 15).c_str());
  }
  worker_thread(const worker_thread&) = delete;
  worker_thread& operator=(const worker_thread&) = delete;
  ~worker_thread() {
    {
      const std::lock_guard lock(mutex_);
      is_ending_ = true;
    }
    wake_.notify_one();
    thread_.join();
  }

  /// Queues work. Thread: any.
  void post(detail::work& w) noexcept {
    const std::lock_guard lock(mutex_);
    queue_.push(w);
    // Under the lock: the work may lead to the destruction of this object.
    wake_.notify_one();
  }

  [[nodiscard]] std::thread::id id() const noexcept { return thread_.get_id(); }

 private:
  void run() noexcept {
    for (;;) {
      detail::work* next = nullptr;
      {
        std::unique_lock lock(mutex_);
        wake_.wait(lock, [this] { return !queue_.empty() || is_ending_; });
        next = queue_.pop();
      }
      if (!next) return;
      next->run();
    }
  }

  std::mutex mutex_;
  std::condition_variable wake_;
  detail::work_queue queue_;
  bool is_ending_ = false;
  // The thread comes last: it uses the other members from its start.
  std::thread thread_;
};

}  // namespace manyworlds::inline v0
