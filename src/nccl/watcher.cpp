#include "nccl/watcher.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>

#include "io/reactor.hpp"
#include "nccl/cuda_library.hpp"
#include "nccl/helper_threads.hpp"
#include "nccl/thread_name.hpp"

namespace manyworlds::inline v0::detail::nccl {

namespace {

constexpr duration shortest_interval = std::chrono::microseconds(20);
constexpr duration longest_interval = std::chrono::milliseconds(1);

time_point clock_now() { return std::chrono::steady_clock::now(); }

}  // namespace

// Its thread holds it.
class watcher::round : public std::enable_shared_from_this<round> {
 public:
  explicit round(std::optional<int> device)
      : device_(device),
        spin_(has_cpus_for_helpers() ? default_spin() : duration::zero()) {}

  bool start(helper_threads& helpers) {
    const std::lock_guard lock(mutex_);
    if (!is_started_) {
      is_started_ = helpers.post([self = shared_from_this()] { self->run(); });
    }
    return is_started_;
  }

  void add(std::shared_ptr<question> asked) noexcept {
    question& q = *asked;
    const std::lock_guard lock(mutex_);
    if (is_over_) return;
    q.itself_ = std::move(asked);
    q.since_ = q.due_ = clock_now();
    added_.push(q);
    wake_.notify_one();
  }

  void end() noexcept {
    line left;
    {
      const std::lock_guard lock(mutex_);
      is_over_ = true;
      wake_.notify_one();
      if (!is_started_) left = std::exchange(added_, {});
    }
    left.drop();
  }

 private:
  /// First in, first out: copies of one stream are enqueued as they were started.
  struct line {
    void push(question& q) noexcept {
      q.next_ = nullptr;
      (last ? last->next_ : first) = &q;
      last = &q;
    }
    question* pop() noexcept {
      question* const q = first;
      if (q) first = std::exchange(q->next_, nullptr);
      if (!first) last = nullptr;
      return q;
    }
    [[nodiscard]] bool is_empty() const noexcept { return !first; }
    /// With the last of the owners of what asks the watcher itself may go.
    void drop() noexcept {
      while (question* q = pop()) {
        const auto owner = std::move(q->itself_);
      }
    }

    question* first = nullptr;
    question* last = nullptr;
  };

  void run() noexcept {
    const thread_name named(device_ ? fmt::format("mw-watch-{}", *device_) : "mw-watch");
    std::optional<device_scope> here;
    if (device_) here.emplace(*device_);
    while (take_added()) ask_all();
    // They hold us, by the device that has us. Nothing is added after this.
    asked_.drop();
  }

  // Waits until something is due; false if the watcher is over.
  bool take_added() noexcept {
    std::unique_lock lock(mutex_);
    while (!is_over_ && added_.is_empty()) {
      const auto next = next_due();
      if (next && (*next <= clock_now() || is_spinning())) break;
      if (next) {
        wake_.wait_until(lock, *next);
      } else {
        wake_.wait(lock);
      }
    }
    while (question* q = added_.pop()) asked_.push(*q);
    return !is_over_;
  }

  void ask_all() noexcept {
    if (is_spinning()) std::this_thread::yield();
    line all = std::exchange(asked_, {});
    while (question* q = all.pop()) {
      if (q->due_ > clock_now()) {
        asked_.push(*q);
      } else {
        ask_one(*q);
      }
    }
  }

  void ask_one(question& q) noexcept {
    // Taken away first: a question that is over may be added again before it returns.
    auto itself = std::move(q.itself_);
    const progress told = q.ask();
    if (told == progress::over) return;
    const time_point at = clock_now();
    if (told == progress::goes_on) {
      spins_until_ = at + spin_;
      q.since_ = at;
    }
    // Found at most an eighth late, and a long wait is next to free.
    q.due_ = is_spinning() ? at
                           : at + std::clamp((at - q.since_) / 8, shortest_interval,
                                             longest_interval);
    q.itself_ = std::move(itself);
    asked_.push(q);
  }

  [[nodiscard]] bool is_spinning() const noexcept {
    return spin_ > duration::zero() && clock_now() < spins_until_;
  }

  [[nodiscard]] std::optional<time_point> next_due() const noexcept {
    std::optional<time_point> earliest;
    for (const question* q = asked_.first; q; q = q->next_) {
      if (!earliest || q->due_ < *earliest) earliest = q->due_;
    }
    return earliest;
  }

  const std::optional<int> device_;
  const duration spin_;
  line asked_;  ///< the thread's own
  time_point spins_until_{};

  std::mutex mutex_;
  std::condition_variable wake_;
  line added_;
  bool is_started_ = false;
  bool is_over_ = false;
};

watcher::watcher(std::optional<int> device) : round_(std::make_shared<round>(device)) {}
watcher::~watcher() { end(); }

bool watcher::start(helper_threads& helpers) { return round_->start(helpers); }
void watcher::add(std::shared_ptr<question> asked) noexcept {
  round_->add(std::move(asked));
}
void watcher::end() noexcept { round_->end(); }

}  // namespace manyworlds::inline v0::detail::nccl
