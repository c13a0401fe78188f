// Node messages: a head and a text behind it, as a controller and the agents of its nodes
// send them to each other.
#pragma once

#include <fmt/format.h>

#include <deque>
#include <span>
#include <string>
#include <utility>

#include "manyworlds/coro/event.hpp"
#include "manyworlds/coro/task.hpp"
#include "manyworlds/world/world.hpp"
#include "spmd/node_wire.hpp"

namespace manyworlds::inline v0::detail {

template <class Head>
struct node_message {
  Head head;
  std::string text;
};

/// Receives the next message of the other member. One with a longer text than there can
/// be breaks the world, before any memory is taken for it (law 11). Errors: those of the
/// world. Lifetime: it outlives the task.
template <class Head>
task<node_message<Head>> receive_from_node(world& w, rank_t peer) {
  for (;;) {
    const auto told = co_await w.recv_message<Head>(from{peer}, node_wire::orders);
    if (told.info.bytes > node_wire::longest_text) {
      w.fail(fmt::format("a text of {} bytes", told.info.bytes));
      continue;
    }
    node_message<Head> message{told.head, std::string(told.info.bytes, '\0')};
    if (told.info.has_payload)
      co_await w.recv(std::as_writable_bytes(std::span(message.text)), from{peer},
                      node_wire::orders);
    co_return message;
  }
}

/// Messages that wait for their world, in order. Thread: one reactor.
template <class Head>
class node_outbox {
 public:
  void push(const Head& head, std::string text) {
    waiting_.push_back({head, std::move(text)});
    wake_.set();
  }
  void clear() noexcept { waiting_.clear(); }

  /// Sends what is there and what comes, until it is cancelled. Errors: those of the
  /// world. Lifetime: it outlives the task.
  [[nodiscard]] task<void> write(world& w, rank_t peer) {
    for (;;) {
      while (waiting_.empty()) {
        wake_.reset();
        co_await wake_;
      }
      const node_message<Head> next = std::move(waiting_.front());
      waiting_.pop_front();
      co_await w.send_message(next.head, next.text, to{peer}, node_wire::orders);
    }
  }

 private:
  std::deque<node_message<Head>> waiting_;
  event wake_;
};

}  // namespace manyworlds::inline v0::detail
