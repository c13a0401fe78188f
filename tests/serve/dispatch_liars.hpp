// What peers say to each other who keep to the wire of calls, or do not.
#pragma once

#include "dispatch_fixture.hpp"
#include "serve/call_wire.hpp"

namespace manyworlds::dispatch_tests {

using call_wire::answer_head;
using call_wire::answer_kind;
using call_wire::control_entry;
using call_wire::order_head;
using call_wire::order_kind;

/// Sends `head`, then `size` bytes.
template <class Head>
task<void> say(world& w, Head head, std::size_t size = 0) {
  const std::vector<std::byte> data(size, std::byte{'x'});
  co_await w.send_message(head, data, to(1 - w.rank()));
}

inline task<void> wait_for_end(world& w) { (void)co_await w.broken(); }

inline answer_head an_answer(answer_kind kind, std::uint32_t slot = 0) {
  answer_head head{};
  head.kind = kind;
  head.slot = slot;
  return head;
}

inline answer_head a_hello(std::uint32_t slots = 1) {
  answer_head head = an_answer(answer_kind::hello, slots);
  head.word = call_wire::hello_word;
  head.size = 1000;
  return head;
}

inline order_head an_order(order_kind kind, std::uint32_t slot = 0) {
  order_head head{};
  head.kind = kind;
  head.slot = slot;
  head.time_left = call_wire::no_deadline;
  head.window = 1000;
  head.largest_reply = 1000;
  return head;
}

}  // namespace manyworlds::dispatch_tests
