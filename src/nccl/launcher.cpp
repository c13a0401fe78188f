#include "nccl/launcher.hpp"

#include <fmt/format.h>

#include <atomic>
#include <chrono>
#include <mutex>
#include <thread>

#include "io/reactor.hpp"
#include "io/work_inbox.hpp"
#include "nccl/cuda_library.hpp"
#include "nccl/helper_threads.hpp"
#include "nccl/thread_name.hpp"

namespace manyworlds::inline v0::detail::nccl {

// Its threads hold it: one runs it at a time, and each that it was taken from leaves it
// alone.
class launcher::belt : public std::enable_shared_from_this<belt> {
 public:
  explicit belt(int device)
      : device_(device),
        spin_(has_cpus_for_helpers() ? default_spin() : duration::zero()) {}

  bool start(helper_threads& helpers) {
    const std::lock_guard lock(starting_);
    if (!started_) {
      started_ = helpers.post([self = shared_from_this()] { self->run(); });
    }
    return started_;
  }

  void post(work& w) noexcept {
    if (inbox_.push(w)) wake();
  }

  std::uint64_t running() const noexcept {
    // Acquire: what is seen of the world afterwards is not older.
    const std::uint64_t seen = turn_.load(std::memory_order_acquire);
    return (seen & busy) != 0 ? seen >> 1 : 0;
  }

  bool replace(std::uint64_t stuck, helper_threads& helpers) {
    if (running() != stuck) return false;
    return helpers.post([self = shared_from_this(), stuck] {
      // The next number, so that the thread that this was taken from finds another than
      // its own, whatever happens until then. Acquire: pairs with the release in `run`,
      // where the queue was left.
      std::uint64_t seen = stuck << 1 | busy;
      if (self->turn_.compare_exchange_strong(seen, (stuck + 1) << 1,
                                              std::memory_order_acq_rel)) {
        self->run();
      }
    });
  }

  void end() noexcept {
    over_.store(true, std::memory_order_release);
    wake();
  }

 private:
  static constexpr std::uint64_t busy = 1;

  void wake() noexcept {
    wakes_.fetch_add(1, std::memory_order_release);
    wakes_.notify_all();
  }

  void run() noexcept {
    const thread_name named(fmt::format("mw-launch-{}", device_));
    const device_scope here(device_);
    while (work* next = await_next()) {
      // Only this thread changes it while it is not busy.
      const std::uint64_t number = (turn_.load(std::memory_order_relaxed) >> 1) + 1;
      turn_.store(number << 1 | busy, std::memory_order_release);
      next->run();
      std::uint64_t mine = number << 1 | busy;
      if (!turn_.compare_exchange_strong(mine, number << 1, std::memory_order_acq_rel)) {
        return;
      }
    }
  }

  work* await_next() noexcept {
    for (;;) {
      if (work* next = queue_.pop()) return next;
      if (inbox_.take(queue_)) continue;
      if (over_.load(std::memory_order_acquire)) return nullptr;
      if (!spin()) sleep();
    }
  }

  // True if there is something to look at.
  bool spin() noexcept {
    const auto until = std::chrono::steady_clock::now() + spin_;
    do {
      for (int looks = 0; looks < 16; ++looks) {
        if (inbox_.take(queue_)) return true;
      }
      std::this_thread::yield();
    } while (std::chrono::steady_clock::now() < until);
    return false;
  }

  void sleep() noexcept {
    // Read before the sleep is announced: who posts after that changes it. Who ends it
    // changes it after `over_`, which is looked at again here.
    const std::uint32_t seen = wakes_.load(std::memory_order_acquire);
    if (!inbox_.announce_sleep() || over_.load(std::memory_order_acquire)) return;
    wakes_.wait(seen, std::memory_order_acquire);
  }

  const int device_;
  const duration spin_;
  std::mutex starting_;
  bool started_ = false;
  work_inbox inbox_;
  work_queue queue_;
  /// The number of the last piece of work, and whether it runs.
  std::atomic<std::uint64_t> turn_{0};
  std::atomic<std::uint32_t> wakes_{0};
  std::atomic<bool> over_{false};
};

launcher::launcher(int device) : belt_(std::make_shared<belt>(device)) {}
launcher::~launcher() { end(); }

bool launcher::start(helper_threads& helpers) { return belt_->start(helpers); }
void launcher::post(work& w) noexcept { belt_->post(w); }
std::uint64_t launcher::running() const noexcept { return belt_->running(); }
bool launcher::replace(std::uint64_t stuck, helper_threads& helpers) {
  return belt_->replace(stuck, helpers);
}
void launcher::end() noexcept { belt_->end(); }

}  // namespace manyworlds::inline v0::detail::nccl
