// Dispatcher and call server: peers that say what they may, but not when they may.
#include "dispatch_liars.hpp"
#include "serve/call_state.hpp"
#include "serve/dispatch_core.hpp"

namespace manyworlds::dispatch_tests {

TEST_SUITE_BEGIN("serve");

TEST_CASE("the slot of a given-up request stays unused until its worker has ended it") {
  site s({.in_flight_per_worker = 1, .tries = 1});
  s.lead("liar");
  process liar(s, "liar");
  event ends;
  auto body = [&](world& w) -> task<void> {
    answer_head hello = a_hello();
    hello.size = 16'000'000;
    co_await say(w, hello);
    (void)co_await w.arrival(from(0));
    // Large enough that its call is over before all of it has come.
    co_await say(w, an_answer(answer_kind::reply), 8'000'000);
    co_await ends;
    co_await say(w, an_answer(answer_kind::done));
    co_await wait_for_end(w);
  };
  auto lying =
      liar.start(keep(*liar.rt, s.store, {.name = "liar", .rank = 1, .size = 2}, body));
  s.await_workers(1);
  const auto late = s.call("echo " + std::string(8'000'000, 'x'), 2ms);
  const auto next = s.call("echo next");
  s.await(*late);
  CHECK(late->why.cause == cause::timed_out);
  s.sim.run_for(3s);
  CHECK(s.workers->queued() == 1);
  auto end = [&]() -> task<void> {
    ends.set();
    co_return;
  };
  auto ending = liar.start(end());
  REQUIRE(s.until([&] { return s.workers->queued() == 0; }, 1s));
  CHECK(!s.last_loss);
  liar.end();
  s.await(*next);
  CHECK(next->replies.empty());
}

TEST_CASE("what a worker delivers before it leaves is read to its end") {
  // 15 of the replies cost less than the window, 10 more than half of it.
  site s({.tries = 1, .window = 250'000});
  s.lead("hasty");
  process hasty(s, "hasty");
  bool is_asked = false;
  auto body = [&](world& w) -> task<void> {
    co_await say(w, a_hello());
    (void)co_await w.arrival(from(0));
    is_asked = true;
    for (int i = 0; i < 15; ++i) co_await say(w, an_answer(answer_kind::reply), 16'000);
    co_await say(w, an_answer(answer_kind::done));
  };
  auto leaving = hasty.start(
      keep(*hasty.rt, s.store, {.name = "hasty", .rank = 1, .size = 2}, body));
  s.await_workers(1);
  const auto told = s.call("echo");
  REQUIRE(s.until([&] { return is_asked; }, 1s));
  s.leader.stop();
  s.sim.run_for(500ms);
  s.leader.go_on();
  s.await(*told, 1s);
  CHECK(!told->why);
  CHECK(told->count == 15);
  hasty.end();
}

TEST_CASE("a call that was given up keeps its cause when its worker ends it") {
  const least_depth pick;
  call_state c(std::make_shared<dispatch_core>(dispatch_options()), pick_reference(pick),
               1);
  c.give_up(failure(cause::timed_out, ""));
  c.end(call_try(), failure());
  CHECK(c.is_over());
  CHECK(c.ending().cause == cause::timed_out);
  CHECK_THROWS_AS(c.check(), world_error);
}

TEST_CASE(
    "law 9: a leader that takes no ends of its calls has no more requests read until it "
    "does") {
  // Their ends are more than a lane's window holds.
  constexpr std::size_t requests = 9000;
  site s;
  worker& server = s.add("honest", {.concurrent = 2});
  process liar(s, "liar");
  event takes;
  auto serve = [&](world& w) -> task<void> { co_await server.server.serve(w); };
  auto body = [&](world& w) -> task<void> {
    auto ask_all = [&]() -> task<void> {
      const std::string data = "none";
      for (std::uint32_t i = 0; i < requests; ++i) {
        const order_head head = an_order(order_kind::request, i % 2);
        co_await w.send_message(head, data, to(1));
        // The handler has ended when its slot is asked for again.
        co_await sleep_for(1ms);
      }
    };
    auto take_all = [&]() -> task<void> {
      co_await takes;
      // The hello comes first.
      for (std::size_t i = 0; i <= requests; ++i)
        (void)co_await w.recv_message<answer_head>(from(1));
    };
    co_await when_all(ask_all(), take_all());
  };
  const world_options as_leader{.name = "lies", .rank = 0, .size = 2};
  const world_options as_worker{.name = "lies", .rank = 1, .size = 2};
  auto served = server.start(keep(*server.rt, s.store, as_worker, serve));
  auto lying = liar.start(keep(*liar.rt, s.store, as_leader, body));
  s.sim.run_for(10s);
  const std::size_t begun = server.begun.size();
  CHECK(begun > 100);
  CHECK(begun < requests);
  s.sim.run_for(1s);
  CHECK(server.begun.size() == begun);
  auto take = [&]() -> task<void> {
    takes.set();
    co_return;
  };
  auto taking = liar.start(take());
  CHECK(s.until([&] { return server.begun.size() > begun; }));
  // Their tasks refer to what is destroyed next.
  server.end();
  liar.end();
}

TEST_SUITE_END();

}  // namespace manyworlds::dispatch_tests
