// Worlds over a transport and an engine of one's own, which src/EXTENDING.md shows.
#include "io/poll_engine.hpp"
#include "late_backend.hpp"
#include "toy_backend.hpp"
#include "world_fixture.hpp"

namespace manyworlds::world_tests {

namespace {

runtime_options over(backend_factory& exchange) {
  return {.shared_memory = false, .backends = &exchange};
}

task<failure> meeting_all(world& w) { co_return (co_await outcome(w.barrier())).error(); }

/// One word there and back, with the receive first: a send of the toy ends when it was
/// received.
void exchange_words(node& a, world& wa, node& b, world& wb) {
  const auto send = [](world& w, rank_t peer) -> task<void> {
    const std::uint64_t word = 42;
    co_await w.send(object(word), to(peer));
  };
  const auto receive = [](world& w) -> task<std::uint64_t> {
    std::uint64_t word = 0;
    co_await w.recv(object(word), from(any));
    co_return word;
  };
  auto there = b.rt.start(receive(wb));
  a.run(send(wa, wb.rank()));
  CHECK(b.finish(there) == 42);
  auto back = a.rt.start(receive(wa));
  b.run(send(wb, wa.rank()));
  CHECK(a.finish(back) == 42);
}

}  // namespace

TEST_SUITE_BEGIN("world");

TEST_CASE("a runtime turns an engine of one's own") {
  poll_machine machine;
  runtime_options options;
  options.environment = &machine;
  pair p({.name = "polled", .form = 10s}, options, options);
  CHECK(p.a.rt.engine() == "poll");
  check_alive(p.a, p.wa, p.b, p.wb);
}

TEST_CASE("a world sends, receives and meets over a transport of one's own") {
  toy_exchange exchange;
  pair p({.name = "toy", .form = 10s}, over(exchange), over(exchange));
  CHECK(p.wa.transport() == "toy");
  exchange_words(p.a, p.wa, p.b, p.wb);
  auto first = p.a.rt.start(meeting_all(p.wa));
  CHECK(!first.wait_for(20ms));
  CHECK(!p.b.run(meeting_all(p.wb)));
  CHECK(!p.a.finish(first));
}

TEST_CASE("law 10: a send over it that is given up leaves the world up, and its memory") {
  toy_exchange exchange;
  pair p({.name = "toy", .form = 10s}, over(exchange), over(exchange));
  const auto giving_up = [&]() -> task<failure> {
    std::uint64_t word = 1;
    co_return (co_await outcome(p.wa.send(object(word), to(1)).within(10ms))).error();
  };
  CHECK(p.a.run(giving_up()).cause == cause::timed_out);
  exchange_words(p.a, p.wa, p.b, p.wb);
}

TEST_CASE("a break over it ends who waits, and the next epoch has wires of its own") {
  toy_exchange exchange;
  pair p({.name = "toy", .form = 10s}, over(exchange), over(exchange));
  std::uint64_t word = 0;
  const auto receiving = [&]() -> task<failure> {
    co_return (co_await outcome(p.wa.recv(object(word), from(1)))).error();
  };
  auto waiting = p.a.rt.start(receiving());
  p.wb.fail("enough");
  CHECK(p.a.finish(waiting).cause == cause::broken_by_user);
  world na;
  world nb;
  form_two({.name = "toy", .form = 10s}, p.store, p.a, na, p.b, nb);
  exchange_words(p.a, na, p.b, nb);
}

TEST_CASE("members leave over it in order") {
  toy_exchange exchange;
  pair p({.name = "toy", .form = 10s}, over(exchange), over(exchange));
  exchange_words(p.a, p.wa, p.b, p.wb);
  p.a.run(p.wa.leave());
  CHECK(p.wa.state() == world_state::closed);
  p.b.run(p.wb.leave());
  CHECK(p.wb.state() == world_state::closed);
}

TEST_CASE(
    "law 5: a wrapper begins sends late, counts their bytes and keeps their order") {
  late_exchange exchange(20ms);
  pair p({.name = "late", .form = 10s}, over(exchange), over(exchange));
  CHECK(p.wa.transport() == "late");
  const auto sending = [&]() -> task<void> {
    const std::uint64_t first = 1, second = 2;
    co_await when_all(p.wa.send(object(first), to(1)), p.wa.send(object(second), to(1)));
  };
  const auto receiving = [&]() -> task<std::uint64_t> {
    std::uint64_t first = 0, second = 0;
    co_await p.wb.recv(object(first), from(0));
    co_await p.wb.recv(object(second), from(0));
    co_return 10 * first + second;
  };
  const auto began = clock::now();
  auto sent = p.a.rt.start(sending());
  CHECK(p.b.run(receiving()) == 12);
  CHECK(clock::now() - began >= 20ms);
  p.a.finish(sent);
  CHECK(exchange.bytes() == 2 * sizeof(std::uint64_t));
  auto met = p.a.rt.start(meeting_all(p.wa));
  CHECK(!p.b.run(meeting_all(p.wb)));
  CHECK(!p.a.finish(met));
}

TEST_CASE("a send that a wrapper holds is given up, broken or delivered") {
  late_exchange exchange(1h);
  pair p({.name = "late", .form = 10s}, over(exchange), over(exchange));
  const auto sending = [&](const std::uint64_t& word, duration limit) -> task<failure> {
    const auto sent = co_await outcome(p.wa.send(object(word), to(1)).within(limit));
    co_return sent.error();
  };
  const auto turn = []() -> task<void> { co_await yield(); };
  const std::uint64_t first = 1, second = 2;
  CHECK(p.a.run(sending(first, 1ms)).cause == cause::timed_out);
  auto held = p.a.rt.start(sending(second, 1h));
  p.a.run(turn());

  SUBCASE("by a break") {
    p.wa.fail("enough");
    CHECK(p.a.finish(held).cause == cause::broken_by_user);
  }
  SUBCASE("before its member leaves") {
    std::uint64_t came = 0;
    const auto receiving = [&]() -> task<void> {
      co_await p.wb.recv(object(came), from(0));
    };
    auto received = p.b.rt.start(receiving());
    p.a.run(p.wa.leave());
    CHECK(!p.a.finish(held));
    p.b.finish(received);
    CHECK(came == 2);
  }
}

TEST_SUITE_END();

}  // namespace manyworlds::world_tests
