#include "stream.hpp"

#include <driver_types.h>
#include <pthread.h>
#include <signal.h>

#include <atomic>
#include <chrono>
#include <thread>
#include <utility>

#include "machine.hpp"

namespace emulated {
namespace {

// A worker without work goes after this long, so that streams never destroyed (the
// legacy one, those of threads) leave no thread behind.
constexpr std::chrono::milliseconds idle_limit{100};

unsigned long long next_id() {
  static std::atomic<unsigned long long> last = 0;
  return ++last;
}

// Signals are for the program's own threads.
class signals_blocked {
 public:
  signals_blocked() {
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before_);
  }
  ~signals_blocked() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }

 private:
  sigset_t before_;
};

}  // namespace

stream::stream(int device_, unsigned flags_, int priority_)
    : device(device_), flags(flags_), priority(priority_), id(next_id()) {}

bool stream::blocking() const { return (flags & cudaStreamNonBlocking) == 0; }

void stream::push(node_ptr work) { push(entry{std::move(work), nullptr}); }

void stream::push(moment_ptr mark) { push(entry{nullptr, std::move(mark)}); }

void stream::push(entry next) {
  std::lock_guard hold(mutex_);
  if (!connection_) connection_ = machine::here().on(device).next_connection();
  if (!has_worker_) start_worker();
  if (connection_) next.turn = connection_->give();
  queue_.push_back(std::move(next));
  more_.notify_one();
}

bool stream::busy() const {
  std::lock_guard hold(mutex_);
  return running_ || !queue_.empty();
}

void stream::end() {
  std::lock_guard hold(mutex_);
  ended_ = true;
  more_.notify_one();
}

void stream::drop_queued() {
  std::deque<entry> dropped;
  {
    std::lock_guard hold(mutex_);
    lost_work_ = lost_work_ || running_ || !queue_.empty();
    dropped.swap(queue_);
    for (entry& each : dropped)
      if (connection_) connection_->drop(each.turn);
  }
  for (entry& each : dropped)
    if (each.mark) each.mark->drop();
}

bool stream::lost_work() const {
  std::lock_guard hold(mutex_);
  return lost_work_;
}

void stream::start_worker() {
  signals_blocked while_it_starts;
  // Detached: exit() need not wait for a stream that hangs. All that it touches is its
  // own or never destroyed.
  std::thread([self = shared_from_this()] { self->work_on(); }).detach();
  has_worker_ = true;
}

void stream::work_on() {
  pthread_setname_np(pthread_self(), "emu-stream");
  std::unique_lock hold(mutex_);
  for (;;) {
    more_.wait_for(hold, idle_limit, [&] { return !queue_.empty() || ended_; });
    if (queue_.empty()) break;
    entry next = std::move(queue_.front());
    queue_.pop_front();
    if (connection_) {
      running_ = true;
      hold.unlock();
      connection_->start(next.turn);
      hold.lock();
      running_ = false;
    }
    const bool is_broken = machine::here().broken() != cudaSuccess;
    lost_work_ = lost_work_ || is_broken;
    if (next.mark) {
      // With the lock held: who sees the mark finds the stream idle.
      is_broken ? next.mark->drop() : next.mark->come();
      continue;
    }
    running_ = true;
    hold.unlock();
    if (!is_broken) next.work->run();
    next.work.reset();
    hold.lock();
    running_ = false;
    // What waited for another stream ends when that one's work is dropped.
    lost_work_ = lost_work_ || machine::here().broken() != cudaSuccess;
  }
  has_worker_ = false;
}

}  // namespace emulated
