#include "io/file_reads.hpp"

#include <pthread.h>

#include <cerrno>
#include <system_error>

#include "io/posix_network.hpp"
#include "io/signals_blocked.hpp"
#include "manyworlds/detail/assertion.hpp"

namespace manyworlds::inline v0::detail {

file_reads::~file_reads() {
  {
    const std::lock_guard lock(mutex_);
    is_over_ = true;
  }
  changed_.notify_all();
  for (std::size_t i = 0; i < thread_count_; ++i) threads_[i].join();
}

void file_reads::submit(io_request& r) noexcept {
  MW_ASSERT(r.kind == io_kind::read_at, "only reads of files are done by threads");
  const std::lock_guard lock(mutex_);
  r.engine.token = waiting;
  waiting_.push(r);
  ++waiting_count_;
  const int error = waiting_count_ > idle_ ? start_thread() : 0;
  if (thread_count_ > 0) return changed_.notify_one();
  waiting_.remove(r);
  --waiting_count_;
  note_end(r, io_result::failure(error));
}

void file_reads::cancel(io_request& r) noexcept {
  const std::lock_guard lock(mutex_);
  if (r.engine.token != waiting) return;
  waiting_.remove(r);
  --waiting_count_;
  note_end(r, io_result::failure(ECANCELED));
}

io_request* file_reads::pop_ended() noexcept {
  const std::lock_guard lock(mutex_);
  io_request* const r = ended_.pop();
  MW_ASSERT(r, "only what has ended is taken");
  has_ended_.store(!ended_.empty(), std::memory_order_relaxed);
  return r;
}

/// Starts a thread, unless there are enough. Returns the errno for which there is none.
int file_reads::start_thread() noexcept {
  if (thread_count_ == most_threads) return 0;
  const signals_blocked while_starting;
  try {
    threads_[thread_count_] = std::thread([this] { run(); });
  } catch (const std::system_error& e) {
    return e.code().value();
  } catch (const std::bad_alloc&) {
    return ENOMEM;
  }
  ::pthread_setname_np(threads_[thread_count_].native_handle(), "mw-files");
  ++thread_count_;
  return 0;
}

void file_reads::run() noexcept {
  std::unique_lock lock(mutex_);
  for (;;) {
    ++idle_;
    changed_.wait(lock, [this] { return is_over_ || !waiting_.empty(); });
    --idle_;
    if (is_over_) return;
    io_request& r = *waiting_.pop();
    --waiting_count_;
    r.engine.token = begun;
    lock.unlock();
    const io_result result = attempt(r);
    lock.lock();
    // The engine is gone, and the request may be with its owner.
    if (is_over_) return;
    note_end(r, result);
    notices_.give();
  }
}

/// Precondition: the mutex is held.
void file_reads::note_end(io_request& r, io_result result) noexcept {
  MW_ASSERT(r.engine.token != ended, "a request ends once (law 1)");
  r.engine.token = ended;
  r.result = result;
  ended_.push(r);
  has_ended_.store(true, std::memory_order_release);
}

}  // namespace manyworlds::inline v0::detail
