// Dispatcher and call server: a peer that lies has its world broken, and nothing else.
#include "dispatch_liars.hpp"

namespace manyworlds::dispatch_tests {

TEST_SUITE_BEGIN("serve");

namespace {

using script = std::function<task<void>(world&)>;

struct lie {
  const char* name;
  /// In the failure's text.
  const char* told;
  script tell;
};

// --- a worker that lies

/// Says hello, takes a request, and tells the lie.
script after_request(script tell) {
  return [tell](world& w) -> task<void> {
    co_await say(w, a_hello());
    const auto got = co_await w.recv_message<order_head>(from(0));
    std::vector<std::byte> data(got.info.bytes);
    co_await w.recv(data, from(0));
    co_await tell(w);
  };
}

script at_once(answer_head head, std::size_t size = 0) {
  return [=](world& w) { return say(w, head, size); };
}
script later_on(answer_head head, std::size_t size = 0) {
  return after_request(at_once(head, size));
}

answer_head an_error(cause why) {
  answer_head head = an_answer(answer_kind::failed);
  head.why = why;
  return head;
}

std::vector<lie> lies_of_workers() {
  answer_head foreign = a_hello();
  foreign.word = 42;
  const auto twice = [](world& w) -> task<void> {
    co_await say(w, a_hello());
    co_await say(w, a_hello());
  };
  const auto too_many_replies = [](world& w) -> task<void> {
    for (int i = 0; i < 3; ++i) co_await say(w, an_answer(answer_kind::reply), 400);
  };
  const auto no_head = [](world& w) -> task<void> {
    const std::uint64_t word = 1;
    co_await w.send(std::span(&word, 1), to(0));
  };
  return {
      {"an answer before the hello", "before the hello",
       at_once(an_answer(answer_kind::load))},
      {"a hello of another protocol", "another protocol", at_once(foreign)},
      {"a hello without slots", "0 slots", at_once(a_hello(0))},
      {"a hello with slots without end", "4294967295 slots", at_once(a_hello(~0u))},
      {"a second hello", "a second hello", twice},
      {"bytes behind a hello", "bytes behind", at_once(a_hello(), 8)},
      {"another head", "in a call", [](world& w) { return say(w, 42); }},
      {"no head", "in a call", no_head},
      {"an unknown kind", "of kind 99",
       later_on(an_answer(static_cast<answer_kind>(99)))},
      {"a slot that there is not", "slot 7", later_on(an_answer(answer_kind::done, 7))},
      {"bytes behind an end", "bytes behind", later_on(an_answer(answer_kind::done), 8)},
      {"a second end", "no call", after_request([](world& w) -> task<void> {
         co_await say(w, an_answer(answer_kind::done));
         co_await say(w, an_answer(answer_kind::done));
       })},
      {"a reply that is too large", "2001 bytes",
       later_on(an_answer(answer_kind::reply), 2001)},
      {"replies beyond the window", "window", after_request(too_many_replies)},
      {"fewer replies than have come", "has sent less than has come",
       after_request([](world& w) -> task<void> {
         co_await say(w, an_answer(answer_kind::reply), 400);
         co_await say(w, an_answer(answer_kind::sent));
       })},
      {"more than the window given up", "has sent more than the call's window",
       after_request([](world& w) -> task<void> {
         answer_head head = an_answer(answer_kind::sent);
         // Half the window, and the largest reply behind it, are 2,564.
         head.word = 2565;
         co_await say(w, head);
       })},
      {"a number given up that makes the next reply wrap",
       "has sent more than the call's window", after_request([](world& w) -> task<void> {
         answer_head head = an_answer(answer_kind::sent);
         head.word = ~std::uint64_t{0};
         co_await say(w, head);
         co_await say(w, an_answer(answer_kind::reply));
       })},
      {"a call given back behind a reply", "begun to answer",
       after_request([](world& w) -> task<void> {
         co_await say(w, an_answer(answer_kind::reply), 10);
         co_await say(w, an_answer(answer_kind::given_back));
       })},
      {"a call given back that it has not", "no call",
       after_request([](world& w) -> task<void> {
         co_await say(w, an_answer(answer_kind::done));
         co_await say(w, an_answer(answer_kind::given_back));
       })},
      {"bytes behind a drain", "bytes behind",
       later_on(an_answer(answer_kind::draining), 8)},
      {"an error that breaks worlds", "an error of kind",
       later_on(an_error(cause::peer_died))},
      {"an error that there is not", "an error of kind 250",
       later_on(an_error(static_cast<cause>(250)))},
      {"an error that tells a novel", "text of 5000 bytes",
       later_on(an_error(cause::handler_failed), 5000)},
  };
}

// --- a leader that lies

task<void> ask(world& w) {
  const order_head head = an_order(order_kind::request);
  const std::string data = "hold";
  co_await w.send_message(head, data, to(1));
}

script some_control(std::vector<control_entry> entries, std::uint32_t count) {
  return [=](world& w) -> task<void> {
    co_await ask(w);
    order_head head = an_order(order_kind::control);
    head.count = count;
    const auto data = std::as_bytes(std::span(entries));
    co_await w.send_message(head, data, to(1));
  };
}
script some_control(control_entry entry) { return some_control({entry}, 1); }

std::vector<lie> lies_of_leaders() {
  const auto twice = [](world& w) -> task<void> {
    co_await ask(w);
    co_await ask(w);
  };
  using call_wire::control_kind;
  return {
      {"a slot that there is not", "slot 2",
       [](world& w) { return say(w, an_order(order_kind::request, 2)); }},
      {"a slot that is taken", "slot 0", twice},
      {"a request that is too large", "1001 bytes",
       [](world& w) { return say(w, an_order(order_kind::request), 1001); }},
      {"an unknown order", "kind 9",
       [](world& w) { return say(w, an_order(static_cast<order_kind>(9))); }},
      {"another head", "in a call", [](world& w) { return say(w, 42); }},
      {"control without end", "of control", some_control({}, ~0u)},
      {"control without its entries", "of control", some_control({}, 1)},
      {"control of a slot that there is not", "slot 2",
       some_control({control_kind::cancel, 2, 0})},
      {"control of an unknown kind", "kind 9",
       some_control({static_cast<control_kind>(9), 0, 0})},
      {"a cancellation of another call", "another call",
       some_control({control_kind::cancel, 0, 7})},
      {"no more requests, unasked", "no more requests",
       some_control({control_kind::no_more, 0, 0})},
      {"credit for what was not sent", "credit",
       some_control({control_kind::credit, 0, 1})},
  };
}

}  // namespace

TEST_CASE(
    "a worker that lies breaks its own world, by protocol_error, and its call is "
    "answered by another") {
  for (const lie& each : lies_of_workers()) {
    CAPTURE(std::string(each.name));
    site s({.in_flight_per_worker = 4, .window = 1000, .largest_reply = 2000});
    s.lead("liar");
    process liar(s, "liar");
    auto body = [&](world& w) -> task<void> {
      co_await each.tell(w);
      co_await wait_for_end(w);
    };
    auto lying =
        liar.start(keep(*liar.rt, s.store, {.name = "liar", .rank = 1, .size = 2}, body));
    const auto told = s.call("count 2");
    REQUIRE(s.until([&] { return bool(s.last_loss); }, 5s));
    CHECK(s.last_loss.cause == cause::protocol_error);
    CHECK(s.last_loss.rank == 1);
    CAPTURE(s.last_loss.text());
    CHECK(s.last_loss.detail.find(each.told) != std::string::npos);
    liar.kill();
    s.add("honest");
    s.await_workers(1);
    const auto after = s.call("count 2");
    s.await(*after);
    CHECK(after->replies == "0 1");
    liar.end();
  }
}

TEST_CASE("a leader that lies breaks its own world, by protocol_error, and no other") {
  for (const lie& each : lies_of_leaders()) {
    CAPTURE(std::string(each.name));
    site s;
    worker& server = s.add("honest", {.concurrent = 2, .largest_request = 1000});
    s.await_workers(1);
    process liar(s, "liar");
    failure seen;
    auto serve = [&](world& w) -> task<void> {
      auto served = co_await outcome(server.server.serve(w));
      seen = served.error();
    };
    auto body = [&](world& w) -> task<void> {
      (void)co_await w.recv_message<answer_head>(from(1));
      co_await each.tell(w);
      co_await wait_for_end(w);
    };
    const world_options as_leader{.name = "lies", .rank = 0, .size = 2};
    const world_options as_worker{.name = "lies", .rank = 1, .size = 2};
    auto served = server.start(keep(*server.rt, s.store, as_worker, serve));
    auto lying = liar.start(keep(*liar.rt, s.store, as_leader, body));
    REQUIRE(s.until([&] { return bool(seen); }, 5s));
    CHECK(seen.cause == cause::protocol_error);
    CAPTURE(seen.text());
    CHECK(seen.detail.find(each.told) != std::string::npos);
    const auto after = s.call("count 2");
    s.await(*after);
    CHECK(after->replies == "0 1");
    // Their tasks refer to what is destroyed next.
    server.end();
    liar.end();
  }
}

TEST_CASE(
    "a cancellation right behind its request ends the call, whether its handler has "
    "begun or "
    "not") {
  int not_begun = 0;
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    site s({}, seed);
    worker& server = s.add("honest");
    auto serve = [&](world& w) -> task<void> { co_await server.server.serve(w); };
    answer_head last{};
    auto ask_and_cancel = [&](world& w) -> task<void> {
      (void)co_await w.recv_message<answer_head>(from(1));
      const script both = some_control({call_wire::control_kind::cancel, 0, 0});
      co_await both(w);
      const auto got = co_await w.recv_message<answer_head>(from(1));
      last = got.head;
    };
    const world_options as_leader{.name = "other", .rank = 0, .size = 2};
    const world_options as_worker{.name = "other", .rank = 1, .size = 2};
    auto served = server.start(keep(*server.rt, s.store, as_worker, serve));
    auto asked = s.leader.start(keep(*s.leader.rt, s.store, as_leader, ask_and_cancel));
    REQUIRE(s.until([&] { return asked.is_ready(); }, 5s));
    CHECK(last.kind == answer_kind::failed);
    CHECK(last.why == cause::cancelled);
    not_begun += server.begun.empty();
    server.end();
  }
  // The seeds have both.
  CHECK(not_begun > 0);
  CHECK(not_begun < 20);
}

TEST_CASE("calls are served in worlds of two members only") {
  site s;
  process a(s, "a");
  process b(s, "b");
  const auto options = [](rank_t rank) {
    world_options o{.name = "three", .rank = rank, .size = 3};
    return o;
  };
  auto join = [&](process& p, rank_t rank) -> task<void> {
    world w(*p.rt, s.store, options(rank));
    co_await w;
    auto served = co_await outcome(s.workers->serve(w));
    if (rank == 0) CHECK(served.error().cause == cause::invalid_argument);
    if (rank == 0) CHECK(served.error().detail.find("has 3") != std::string::npos);
  };
  auto leading = s.leader.start(join(s.leader, 0));
  auto first = a.start(join(a, 1));
  auto second = b.start(join(b, 2));
  REQUIRE(s.until([&] { return leading.is_ready(); }));
  leading.get();
  a.end();
  b.end();
}

TEST_SUITE_END();

}  // namespace manyworlds::dispatch_tests
