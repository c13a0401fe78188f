// The demo's work: numbered requests, each of which must be answered, over any world.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <unordered_set>

/// Hands out numbers, and hands out again the numbers of worlds that broke before the
/// answer came. Used on one thread.
class request_queue {
 public:
  /// Returns the next number to send; nothing when no new ones are wanted.
  std::optional<std::uint64_t> take() {
    while (!again_.empty()) {
      const std::uint64_t number = again_.front();
      again_.pop_front();
      // It was answered meanwhile by a worker that was thought lost.
      if (!open_.contains(number)) continue;
      ++sent_;
      ++retried_;
      return number;
    }
    if (is_closed_) return std::nullopt;
    ++sent_;
    open_.insert(++last_);
    return last_;
  }
  /// Puts a number back: no answer is expected for now, and another world may take it.
  void put_back(std::uint64_t number) { again_.push_back(number); }
  void note_answer(std::uint64_t number) {
    if (open_.erase(number) == 0) ++twice_;
  }
  void close() noexcept { is_closed_ = true; }

  [[nodiscard]] bool all_answered() const noexcept { return open_.empty(); }
  [[nodiscard]] std::uint64_t asked() const noexcept { return last_; }
  [[nodiscard]] std::uint64_t answered() const noexcept { return last_ - open_.size(); }
  [[nodiscard]] std::uint64_t sent() const noexcept { return sent_; }
  [[nodiscard]] std::uint64_t retried() const noexcept { return retried_; }
  [[nodiscard]] std::uint64_t twice() const noexcept { return twice_; }

 private:
  std::unordered_set<std::uint64_t> open_;
  std::deque<std::uint64_t> again_;
  std::uint64_t last_ = 0, sent_ = 0, retried_ = 0, twice_ = 0;
  bool is_closed_ = false;
};
