// Agent outbox: words that wait for their world, in order.
#pragma once

#include <deque>
#include <utility>

#include "manyworlds/coro/event.hpp"
#include "manyworlds/coro/task.hpp"
#include "mpmd/agent_words.hpp"

namespace manyworlds::inline v0::detail {

/// One for each connection: what was meant for one that is over is not sent on the next.
/// Thread: one reactor.
class agent_outbox {
 public:
  void push(agent_word word) {
    waiting_.push_back(std::move(word));
    wake_.set();
  }
  /// Sends what is there and what comes, until it is cancelled. Errors: those of the
  /// world. Lifetime: it outlives the task.
  [[nodiscard]] task<void> write(world& w, rank_t peer) {
    for (;;) {
      while (waiting_.empty()) {
        wake_.reset();
        co_await wake_;
      }
      agent_word next = std::move(waiting_.front());
      waiting_.pop_front();
      co_await send_word(w, peer, std::move(next));
    }
  }

 private:
  std::deque<agent_word> waiting_;
  event wake_;
};

/// Where the outbox of the present connection is found, if there is one.
class current_outbox {
 public:
  /// Drops the word while there is none: what matters is told anew on the next one.
  void push(agent_word word) const {
    if (now_ != nullptr) now_->push(std::move(word));
  }
  [[nodiscard]] bool is_there() const noexcept { return now_ != nullptr; }

  /// Makes an outbox the present one while it lives. A later one takes its place.
  class while_connected {
   public:
    while_connected(current_outbox& at, agent_outbox& own) : at_(at), own_(own) {
      at_.now_ = &own;
    }
    while_connected(const while_connected&) = delete;
    while_connected& operator=(const while_connected&) = delete;
    ~while_connected() {
      if (at_.now_ == &own_) at_.now_ = nullptr;
    }

   private:
    current_outbox& at_;
    agent_outbox& own_;
  };

 private:
  agent_outbox* now_ = nullptr;
};

}  // namespace manyworlds::inline v0::detail
