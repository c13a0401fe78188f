// Agent outbox: words that wait for their world, in order.
#pragma once

#include <deque>
#include <utility>

#include "manyworlds/coro/event.hpp"
#include "manyworlds/coro/task.hpp"
#include "mpmd/agent_words.hpp"

namespace manyworlds::inline v0::detail {

/// Thread: one reactor.
class agent_outbox {
 public:
  void push(agent_word word) {
    waiting_.push_back(std::move(word));
    wake_.set();
  }
  void clear() noexcept { waiting_.clear(); }
  [[nodiscard]] bool is_empty() const noexcept { return waiting_.empty() && !sends_; }

  /// Sends what is there and what comes, until it is cancelled. Errors: those of the
  /// world. Lifetime: it outlives the task.
  [[nodiscard]] task<void> write(world& w, rank_t peer) {
    sends_ = false;
    for (;;) {
      while (waiting_.empty()) {
        sends_ = false;
        empty_.set();
        wake_.reset();
        co_await wake_;
      }
      empty_.reset();
      sends_ = true;
      agent_word next = std::move(waiting_.front());
      waiting_.pop_front();
      co_await send_word(w, peer, std::move(next));
    }
  }
  /// Waits until all was sent.
  [[nodiscard]] task<void> drained() {
    while (!is_empty()) co_await empty_;
  }

 private:
  std::deque<agent_word> waiting_;
  bool sends_ = false;
  event wake_;
  event empty_;
};

}  // namespace manyworlds::inline v0::detail
