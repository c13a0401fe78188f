// Store health: whether a store answers its client, for other threads.
#pragma once

#include <chrono>
#include <cstddef>
#include <mutex>
#include <optional>
#include <string>
#include <utility>

#include "manyworlds/coro/executor.hpp"
#include "manyworlds/detail/assertion.hpp"
#include "manyworlds/time.hpp"

namespace manyworlds::inline v0::detail {

/// Notes when answers are due and when they come. Thread: any for `trouble`, the home's
/// for the rest.
class store_health {
 public:
  explicit store_health(const executor& home) noexcept : home_(home) {}
  store_health(const store_health&) = delete;
  store_health& operator=(const store_health&) = delete;

  /// See store::trouble.
  [[nodiscard]] std::string trouble() const {
    const std::lock_guard lock(mutex_);
    if (!trouble_.empty() || !no_answer_since_) return trouble_;
    return is_late() ? no_answer : "";
  }
  void note_failure(std::string reason) {
    const std::lock_guard lock(mutex_);
    trouble_ = std::move(reason);
  }
  void note_answer() {
    const std::lock_guard lock(mutex_);
    trouble_.clear();
    no_answer_since_.reset();
  }

  /// Notes for its lifetime that the store owes an answer.
  class question {
   public:
    explicit question(store_health& of) : of_(of) { of_.begin_question(); }
    question(const question&) = delete;
    question& operator=(const question&) = delete;
    ~question() { of_.end_question(); }

   private:
    store_health& of_;
  };
  /// Suspends that for its lifetime, since a wait for keys needs no answer now.
  class parked_question {
   public:
    explicit parked_question(store_health& of) : of_(of) { of_.end_question(); }
    parked_question(const parked_question&) = delete;
    parked_question& operator=(const parked_question&) = delete;
    ~parked_question() { of_.begin_question(); }

   private:
    store_health& of_;
  };

 private:
  /// A healthy store has answered within this time.
  static constexpr duration prompt_answer = std::chrono::milliseconds(200);
  static constexpr const char* no_answer = "no answer yet";

  [[nodiscard]] bool is_late() const {
    return home_.now() - *no_answer_since_ > prompt_answer;
  }
  void begin_question() {
    const std::lock_guard lock(mutex_);
    if (questions_++ == 0) no_answer_since_ = home_.now();
  }
  void end_question() {
    const std::lock_guard lock(mutex_);
    MW_ASSERT(questions_ > 0, "a question ends once");
    if (--questions_ > 0 || !no_answer_since_) return;
    // The last question was given up. If its answer was late already, that is kept.
    if (trouble_.empty() && is_late()) trouble_ = no_answer;
    no_answer_since_.reset();
  }

  const executor& home_;
  mutable std::mutex mutex_;
  std::string trouble_;  // guarded by mutex_, as are these
  std::size_t questions_ = 0;
  std::optional<time_point> no_answer_since_;
};

}  // namespace manyworlds::inline v0::detail
