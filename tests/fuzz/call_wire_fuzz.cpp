// Whatever a peer says on lane 0 of a world of two, the other end of its calls takes it
// or breaks the world: all of its calls end, and it allocates little for what it was
// told.
#include <sanitizer/allocator_interface.h>

#include <chrono>
#include <string>
#include <utility>
#include <vector>

#include "input.hpp"
#include "process.hpp"
#include "serve/call_wire.hpp"

using namespace manyworlds;
using namespace std::chrono_literals;
using call_wire::answer_head;
using call_wire::answer_kind;
using call_wire::control_entry;
using call_wire::order_head;
using call_wire::order_kind;
using fuzzing::end_both;
using fuzzing::formed;
using fuzzing::input;
using fuzzing::must;
using fuzzing::plain_network;
using fuzzing::process;

namespace {

constexpr int most_steps = 64;
/// More than the library keeps asking for: a message that is offered first.
constexpr std::size_t large = 80'000;
constexpr std::size_t largest = large + 100;
constexpr std::size_t most_allocated = std::size_t{4} << 20;

// --- who tells the truth

/// A handler's reply count, their size, and how it ends, by the first bytes of the
/// request.
task<void> handle(served_call& c) {
  const auto said = [&c](std::size_t at) {
    return at < c.data().size() ? std::to_integer<unsigned>(c.data()[at]) : 0U;
  };
  const unsigned how = said(0);
  const bytes reply(said(1) * std::size_t{8});
  for (unsigned i = 0; i < how % 4; ++i) co_await c.reply(reply);
  if (how / 4 % 4 == 1) co_await sleep_for(3ms);
  if (how / 4 % 4 == 2) co_await sleep_for(1h);
  if (how / 4 % 4 == 3) throw std::runtime_error(std::string(said(1) * 40, 'x'));
}

task<void> serve_calls(process& self, memory_store& store) {
  call_server server(handle, {.concurrent = 4, .largest_request = largest});
  world w = co_await formed(self, store, 1);
  const auto served = co_await outcome(server.serve(w));
  // It has no end but the world's.
  must(!served);
}

/// Reads all replies of some calls, or only the first; some have a deadline.
task<void> call(dispatcher& workers, unsigned number) {
  for (unsigned i = 0; i < 3; ++i) {
    const bytes request(number * std::size_t{100});
    auto called = workers.call(request);
    if (number % 2 == 1) (void)std::move(called).within(20ms);
    auto replies = co_await outcome(std::move(called));
    std::uint64_t count = 0;
    while (replies) {
      const auto next = co_await outcome(replies->next());
      if (!next || !*next || number == 2) break;
      must((*next)->size() <= largest && ++count == replies->received());
      if (number == 3) co_await sleep_for(2ms);
    }
  }
}

task<void> serve_worker(dispatcher& workers, process& self, memory_store& store) {
  world w = co_await formed(self, store, 0);
  const auto served = co_await outcome(workers.serve(w));
  must(!served);
}

task<void> lead_calls(process& self, memory_store& store) {
  dispatch_options options;
  options.in_flight_per_worker = 4;
  options.queue = 6;
  options.patience = 50ms;
  options.window = 2000;
  options.largest_reply = largest;
  dispatcher workers(options);
  auto body = [&](scope& s) -> task<void> {
    s.spawn(serve_worker(workers, self, store));
    for (unsigned number = 0; number < 8; ++number) s.spawn(call(workers, number));
    co_return;
  };
  co_await scope::run(body);
}

// --- who does not

/// Small most of the time, so that it means something.
std::uint64_t word_from(input& in) {
  const auto small = in.take<std::uint8_t>();
  if (small < 250) return small;
  return small == 255 ? ~std::uint64_t{0} : in.take<std::uint64_t>();
}
std::uint32_t slot_from(input& in) { return static_cast<std::uint32_t>(word_from(in)); }

class liar {
 public:
  liar(process& self, memory_store& store, input& in, rank_t rank)
      : self_(self), store_(store), in_(in), rank_(rank) {}

  task<void> lie() {
    const bool hears = in_.take<std::uint8_t>() % 2 == 0;
    world w = co_await formed(self_, store_, rank_);
    auto body = [&](scope& s) -> task<void> {
      if (hears) s.spawn(hear_all(w));
      const std::size_t before = __sanitizer_get_current_allocated_bytes();
      for (int i = 0; i < most_steps && !in_.ended() && w.state() == world_state::up;
           ++i) {
        co_await step(w);
        must(__sanitizer_get_current_allocated_bytes() < before + most_allocated);
      }
      // What it says is heard before its end is.
      co_await sleep_for(5ms);
      s.cancel();
    };
    co_await scope::run(body);
    if (in_.take<std::uint8_t>() % 2 == 0) (void)co_await outcome(w.leave());
  }

 private:
  task<void> step(world& w) {
    const unsigned what = in_.take<std::uint8_t>();
    switch (what % 8) {
      case 0:
        co_await sleep_for(1ms * (in_.take<std::uint8_t>() % 32));
        break;
      case 1:
        co_await hear(w);
        break;
      case 2:
        // Of the other one's form, or of none.
        if (rank_ == 0) {
          co_await say(w, head_from<answer_head>(), 0);
        } else {
          co_await say(w, head_from<order_head>(), 0);
        }
        break;
      case 3: {
        // Without a head.
        const bytes data = content(what);
        (void)co_await outcome(
            w.send(data, to(1 - rank_), lane(what / 8 % 2)).within(2ms));
        break;
      }
      default:
        if (rank_ == 0) {
          co_await order(w, what);
        } else {
          co_await answer(w, what);
        }
    }
  }

  task<void> order(world& w, unsigned what) {
    order_head head{};
    switch (what % 4) {
      case 0:
      case 1: {
        head.kind = order_kind::request;
        head.slot = slot_from(in_);
        const std::uint64_t left = word_from(in_);
        head.time_left = left == 0 ? call_wire::no_deadline : left * 1'000'000;
        head.window = word_from(in_) * 16;
        head.largest_reply = word_from(in_) * 16;
        co_await say(w, head, what);
        break;
      }
      case 2: {
        head.kind = order_kind::control;
        std::vector<control_entry> entries(what / 16 % 4);
        for (control_entry& e : entries) {
          e.kind = static_cast<call_wire::control_kind>(in_.take<std::uint8_t>());
          e.slot = slot_from(in_);
          e.word = word_from(in_) * 8;
        }
        head.count = static_cast<std::uint32_t>(entries.size());
        if (what >= 192) head.count = slot_from(in_);
        const auto data = std::as_bytes(std::span(entries));
        (void)co_await outcome(
            w.send_message(head, data, to(1 - rank_), lane()).within(2ms));
        break;
      }
      default:
        co_await say(w, head_from<order_head>(), what);
    }
  }

  task<void> answer(world& w, unsigned what) {
    answer_head head{};
    switch (what % 4) {
      case 0:
        head.kind = what < 128 ? answer_kind::hello : answer_kind::load;
        head.word = what < 128 ? call_wire::hello_word : word_from(in_);
        head.slot = slot_from(in_);
        head.size = word_from(in_) * 16;
        (void)co_await outcome(w.send_message(head, to(1 - rank_), lane()).within(2ms));
        break;
      case 1:
        head.kind = answer_kind::reply;
        head.slot = slot_from(in_);
        co_await say(w, head, what);
        break;
      case 2:
        head.kind = what < 128 ? answer_kind::done : answer_kind::failed;
        head.slot = slot_from(in_);
        head.why = static_cast<cause>(in_.take<std::uint8_t>());
        co_await say(w, head, what);
        break;
      default:
        co_await say(w, head_from<answer_head>(), what);
    }
  }

  template <class Head>
  Head head_from() {
    Head head{};
    in_.take_into(std::as_writable_bytes(std::span(&head, 1)));
    return head;
  }
  /// Nothing, some bytes of the input, a hundred times as many, or a large one.
  bytes content(unsigned what) {
    const std::size_t size = in_.take<std::uint8_t>();
    bytes data(what / 8 % 4 == 3 ? large + size : what / 8 % 4 * size * 33);
    in_.take_into(std::span(data).first(std::min<std::size_t>(data.size(), 16)));
    return data;
  }
  /// It is given up, perhaps at once.
  template <class Head>
  task<void> say(world& w, Head head, unsigned what) {
    const bytes data = content(what);
    const duration limit = what >= 192 ? duration(50us) : duration(2ms);
    (void)co_await outcome(
        w.send_message(head, data, to(1 - rank_), lane()).within(limit));
  }

  task<void> hear(world& w) {
    return rank_ == 0 ? hear_one<answer_head>(w) : hear_one<order_head>(w);
  }
  template <class Head>
  task<void> hear_one(world& w) {
    const auto got = co_await outcome(
        w.template recv_message<Head>(from(1 - rank_), lane()).within(5ms));
    // What is no head stays where it is.
    if (!got) co_await sleep_for(1ms);
    if (!got || got->info.bytes == 0) co_return;
    bytes data(got->info.bytes);
    (void)co_await outcome(w.recv(data, from(1 - rank_), lane()).within(5ms));
  }
  task<void> hear_all(world& w) {
    while (w.state() == world_state::up) co_await hear(w);
  }

  process& self_;
  memory_store& store_;
  input& in_;
  const rank_t rank_;
};

}  // namespace

// First who lies and whether it hears what it is told; then its steps; last how it goes.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  input in(data, size);
  const rank_t lying = in.take<std::uint8_t>() % 2;
  simulation sim(1, plain_network());
  memory_store store;
  process leader(sim, "leader");
  process worker(sim, "worker");
  liar peer(lying == 0 ? leader : worker, store, in, lying);
  (lying == 0 ? leader : worker).start(peer.lie());
  if (lying == 0) {
    worker.start(serve_calls(worker, store));
  } else {
    leader.start(lead_calls(leader, store));
  }
  must(sim.run_until([&] { return leader.is_quiet() && worker.is_quiet(); }, 60s));
  end_both(sim, leader, worker);
  return 0;
}
