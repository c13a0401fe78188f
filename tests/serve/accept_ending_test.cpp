// Accept and connect: when they end, what they leave behind, and stores that fail.
#include "manyworlds/serve/accept.hpp"

#include <atomic>
#include <memory>
#include <string>

#include "accept_fixture.hpp"
#include "manyworlds/serve/connect.hpp"

namespace manyworlds::world_tests {

TEST_SUITE_BEGIN("serve");

TEST_CASE(
    "after a stop request no more peers are taken, and the bodies that run are awaited") {
  memory_store store;
  node front;
  node early;
  node late;
  std::stop_source enough;
  auto accepted = front.rt.start(
      accept(front.rt, store, {.service = "decode"}, echo, enough.get_token()));
  event go_on;
  event is_up;
  auto lasts = [&](world& w) -> task<void> {
    CHECK(co_await ask(w, 1) == 1);
    is_up.set();
    co_await go_on;
    CHECK(co_await ask(w, 2) == 2);
  };
  auto lasting = early.rt.start(connect(early.rt, store, {.service = "decode"}, lasts));
  auto ready = [&]() -> task<void> { co_await is_up; };
  early.run(ready());
  enough.request_stop();
  std::atomic<int> met{0};
  auto meets = [&](world&) -> task<void> {
    ++met;
    co_return;
  };
  auto waiting = late.rt.start(connect(late.rt, store, {.service = "decode"}, meets));
  CHECK(!waiting.wait_for(200ms));
  CHECK(!accepted.is_ready());
  auto open = [&]() -> task<void> {
    go_on.set();
    co_return;
  };
  early.run(open());
  early.finish(lasting);
  front.finish(accepted);
  CHECK(met == 0);
  // Who still waits is met by the next that accepts.
  node next;
  std::stop_source over;
  auto again = next.rt.start(
      accept(next.rt, store, {.service = "decode"}, echo, over.get_token()));
  late.finish(waiting);
  CHECK(met == 1);
  over.request_stop();
  next.finish(again);
  CHECK(keys_in(next, store) == 0);
}

TEST_CASE(
    "a store that dies breaks no world, and is used again when it comes back empty") {
  node host;
  auto served = std::make_unique<hosted_store>(host.rt, "127.0.0.1:0");
  const std::string address = served->address();
  node front;
  node early;
  node late;
  tcp_store of_front(front.rt, address);
  tcp_store of_early(early.rt, address);
  tcp_store of_late(late.rt, address);
  std::stop_source enough;
  auto accepted = front.rt.start(
      accept(front.rt, of_front, {.service = "decode"}, echo, enough.get_token()));
  event is_up;
  event go_on;
  auto lasts = [&](world& w) -> task<void> {
    CHECK(co_await ask(w, 1) == 1);
    is_up.set();
    co_await go_on;
    CHECK(co_await ask(w, 2) == 2);
  };
  auto lasting =
      early.rt.start(connect(early.rt, of_early, {.service = "decode"}, lasts));
  auto ready = [&]() -> task<void> { co_await is_up; };
  early.run(ready());
  served.reset();
  auto open = [&]() -> task<void> {
    go_on.set();
    co_return;
  };
  early.run(open());
  early.finish(lasting);
  auto asks = [](world& w) -> task<void> { CHECK(co_await ask(w, 3) == 3); };
  auto waiting = late.rt.start(connect(late.rt, of_late, {.service = "decode"}, asks));
  CHECK(!waiting.wait_for(100ms));
  served = std::make_unique<hosted_store>(host.rt, address);
  late.finish(waiting);
  enough.request_stop();
  front.finish(accepted);
}

TEST_CASE("accepting ends when its runtime stops, and so does connecting") {
  memory_store store;
  node front;
  node worker;
  auto accepted = front.rt.start(accept(front.rt, store, {.service = "decode"}, echo));
  auto connected = worker.rt.start(connect(worker.rt, store, {.service = "other"}, echo));
  CHECK(!accepted.wait_for(50ms));
  // Nothing is cancelled for as long as this test may take.
  front.rt.stop(60s);
  worker.rt.stop();
  front.finish(accepted);
  worker.finish(connected);
}

TEST_CASE("wrong options of accept and connect are told at once") {
  memory_store store;
  node a;
  const auto told = [&](task<void> wrong) {
    try {
      a.run(std::move(wrong), 5s);
      return std::string("nothing");
    } catch (const world_error& e) {
      CHECK(e.cause() == cause::invalid_argument);
      return e.failure().detail;
    }
  };
  CHECK(told(accept(a.rt, store, {}, echo)) == "accept: a service needs a name");
  CHECK(told(accept(a.rt, store, {.service = "x", .most = 0}, echo)) ==
        "accept: accept_options::most is 0, so no peer could ever be served");
  CHECK(told(connect(a.rt, store, {.service = "x", .world = {.rank = 1}}, echo)) ==
        "connect: the name, rank and size of a service's worlds are chosen by the "
        "library: leave them empty");
  CHECK(told(connect(a.rt, store, {.service = "x", .world = {.form = 0s}}, echo)) ==
        "connect: the time to form the world (form) must be longer than zero");
}

TEST_CASE("B9, law 6: a thousand connects leave no keys behind, and no names") {
  memory_store store;
  node front;
  node worker;
  int met = 0;
  auto counts = [&](world&) -> task<void> {
    ++met;
    co_return;
  };
  auto ends = [](world&) -> task<void> { co_return; };
  std::stop_source enough;
  auto accepted = front.rt.start(
      accept(front.rt, store, {.service = "decode"}, counts, enough.get_token()));
  auto many = [&]() -> task<void> {
    for (int i = 0; i < 1000; ++i)
      co_await connect(worker.rt, store, {.service = "decode"}, ends);
  };
  worker.run(many(), 60s);
  // The queue, while it is served, and perhaps a bell that no acceptor has heard yet.
  CHECK(keys_in(front, store) <= 2);
  enough.request_stop();
  front.finish(accepted);
  CHECK(keys_in(front, store) == 0);
  CHECK(met == 1000);
  CHECK(access::core(front.rt).worlds().snapshot().empty());
}

TEST_SUITE_END();

}  // namespace manyworlds::world_tests
