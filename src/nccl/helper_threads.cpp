#include "nccl/helper_threads.hpp"

#include <pthread.h>
#include <unistd.h>

#include <chrono>
#include <condition_variable>
#include <deque>
#include <list>
#include <mutex>
#include <system_error>
#include <thread>
#include <utility>

#include "io/forked_thread.hpp"
#include "io/signals_blocked.hpp"
#include "nccl/ranges.hpp"

namespace manyworlds::inline v0::detail::nccl {

namespace {

constexpr std::chrono::seconds longest_idle(1);
constexpr const char* helper_name = "mw-nccl-help";

}  // namespace

// The threads hold it, since they may outlive everything else.
class helper_threads::crew : public std::enable_shared_from_this<crew> {
 public:
  bool post(job run) {
    if (is_forked()) return false;
    const std::lock_guard lock(mutex_);
    if (over_) return false;
    // One of those that there are may never end.
    if (idle_ <= jobs_.size() && !add_thread()) return false;
    jobs_.push_back(std::move(run));
    wake_.notify_one();
    return true;
  }

  void end(duration patience) {
    if (is_forked()) return forget();
    std::unique_lock lock(mutex_);
    over_ = true;
    wake_.notify_all();
    const auto until = later(std::chrono::steady_clock::now(), patience);
    changed_.wait_until(lock, until, [this] { return threads_.empty(); });
    for (std::thread& thread : threads_) {
      if (!thread.joinable()) continue;
      thread.detach();
      ++left_behind_;
    }
    std::thread ended = std::move(ended_);
    lock.unlock();
    if (ended.joinable()) ended.join();
  }

  int left_behind() const {
    const std::lock_guard lock(mutex_);
    return left_behind_;
  }
  int running() const {
    const std::lock_guard lock(mutex_);
    return static_cast<int>(threads_.size());
  }

 private:
  using place = std::list<std::thread>::iterator;

  bool is_forked() const { return ::getpid() != process_; }

  // The lock may be held by a thread that is not in this process.
  void forget() {
    for (std::thread& thread : threads_) forget_forked_thread(thread);
    forget_forked_thread(ended_);
  }

  bool add_thread() {
    const signals_blocked while_starting;
    const place own = threads_.emplace(threads_.end());
    try {
      *own = std::thread([self = shared_from_this(), own] { self->work(own); });
    } catch (const std::system_error&) {
      threads_.erase(own);
      return false;
    }
    ::pthread_setname_np(own->native_handle(), helper_name);
    return true;
  }

  void work(place own) {
    show_thread(helper_name);
    std::unique_lock lock(mutex_);
    while (await_job(lock)) {
      job run = std::move(jobs_.front());
      jobs_.pop_front();
      lock.unlock();
      run();
      run = nullptr;
      lock.lock();
    }
    // One ended thread is left for another to join, so that there is never more than one.
    std::thread before;
    if (own->joinable()) {
      before = std::exchange(ended_, std::move(*own));
    } else {
      --left_behind_;
    }
    threads_.erase(own);
    changed_.notify_all();
    lock.unlock();
    if (before.joinable()) before.join();
  }

  bool await_job(std::unique_lock<std::mutex>& lock) {
    ++idle_;
    wake_.wait_for(lock, longest_idle, [this] { return over_ || !jobs_.empty(); });
    --idle_;
    return !jobs_.empty();
  }

  const pid_t process_ = ::getpid();
  mutable std::mutex mutex_;
  std::condition_variable wake_;
  std::condition_variable changed_;
  std::deque<job> jobs_;
  std::list<std::thread> threads_;
  std::thread ended_;
  std::size_t idle_ = 0;
  int left_behind_ = 0;
  bool over_ = false;
};

helper_threads::helper_threads() : crew_(std::make_shared<crew>()) {}
helper_threads::~helper_threads() { crew_->end(duration::zero()); }

bool helper_threads::post(job run) { return crew_->post(std::move(run)); }
void helper_threads::end(duration patience) { crew_->end(patience); }
int helper_threads::left_behind() const { return crew_->left_behind(); }
int helper_threads::running() const { return crew_->running(); }

}  // namespace manyworlds::inline v0::detail::nccl
