// Inquiry: asks a reactor for an answer from another thread, with a short limit.
#pragma once

#include <chrono>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>

#include "io/reactor.hpp"
#include "manyworlds/detail/assertion.hpp"
#include "manyworlds/detail/member_work.hpp"

namespace manyworlds::inline v0::detail {

/// One question to one reactor, asked any number of times. While the reactor is stuck
/// the question stays in its queue once, however often it is asked again. Lifetime: it
/// must outlive the reactor's last turn.
template <class Answer>
class inquiry final {
 public:
  inquiry(reactor& at, std::function<Answer()> collect)
      : at_(at), collect_(std::move(collect)) {}

  /// Returns the answer, or null if the reactor did not get to it within `patience`.
  /// Thread: any.
  [[nodiscard]] std::shared_ptr<const Answer> ask(std::chrono::milliseconds patience) {
    if (at_.is_current()) return std::make_shared<const Answer>(collect_());
    std::unique_lock lock(mutex_);
    const std::uint64_t before = answers_;
    ++waiting_;
    if (!queued_since_) {
      queued_since_ = std::chrono::steady_clock::now();
      at_.post(question_);
    }
    const bool in_time =
        changed_.wait_for(lock, patience, [&] { return answers_ != before; });
    MW_ASSERT(waiting_ > 0, "each asker is counted until its wait ends");
    --waiting_;
    return in_time ? answer_ : nullptr;
  }

  /// Returns for how long the reactor has owed an answer.
  [[nodiscard]] std::optional<duration> unanswered_for() const {
    const std::lock_guard lock(mutex_);
    if (!queued_since_) return std::nullopt;
    return std::chrono::steady_clock::now() - *queued_since_;
  }

 private:
  void answer() noexcept {
    {
      const std::lock_guard lock(mutex_);
      MW_ASSERT(queued_since_, "a question runs only when it was queued");
      if (waiting_ == 0) {
        queued_since_ = std::nullopt;
        return;
      }
    }
    std::shared_ptr<const Answer> made;
    try {
      made = std::make_shared<const Answer>(collect_());
    } catch (...) {
      // Without memory the answer stays unknown.
    }
    const std::lock_guard lock(mutex_);
    MW_ASSERT(queued_since_, "a question stays queued until its answer is made");
    queued_since_ = std::nullopt;
    answer_ = std::move(made);
    ++answers_;
    changed_.notify_all();
  }

  reactor& at_;
  member_work<&inquiry::answer> question_{*this};
  const std::function<Answer()> collect_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::optional<std::chrono::steady_clock::time_point> queued_since_;
  std::shared_ptr<const Answer> answer_;
  std::uint64_t answers_ = 0;
  int waiting_ = 0;
};

}  // namespace manyworlds::inline v0::detail
