// Dispatcher: between runtimes that turn on threads of their own.
#include <thread>

#include "../world/world_fixture.hpp"

namespace manyworlds::world_tests {

TEST_SUITE_BEGIN("serve");

TEST_CASE(
    "stops that other threads trigger at any moment end their calls, and no world") {
  memory_store store;
  node a;
  node b;
  call_server server([](served_call& c) -> task<void> {
    co_await c.reply(c.data());
    if (c.data().size() > 8) co_await sleep_for(1h);
  });
  auto work = [&](world& w) { return server.serve(w); };
  auto working = b.rt.start(
      keep(b.rt, store, {.name = "edge", .rank = 1, .size = 2, .form = 10s}, work));
  constexpr int rounds = 300;
  std::vector<std::stop_source> gone(rounds);
  channel<int> asked(4 * rounds);
  int stopped = 0;
  int answered = 0;
  int other = 0;
  auto call = [&](dispatcher& workers, int i) -> task<void> {
    // Every other one ends only by its stop.
    const std::vector<std::byte> request(i % 2 ? 8 : 16);
    (void)asked.try_push(i);
    auto replies =
        co_await outcome(workers.call(request).stop(gone[std::size_t(i)].get_token()));
    failure why = replies.error();
    while (replies) {
      auto next = co_await outcome(replies->next().within(10s));
      why = next.error();
      if (!next || !*next) break;
    }
    (!why ? answered : why.cause == cause::cancelled ? stopped : other) += 1;
  };
  auto lead = [&]() -> task<void> {
    dispatcher workers({.patience = 10s});
    auto serve = [&](world& w) { return workers.serve(w); };
    auto body = [&](scope& s) -> task<void> {
      s.spawn(
          keep(a.rt, store, {.name = "edge", .rank = 0, .size = 2, .form = 10s}, serve));
      for (int round = 0; round < rounds; round += 10) {
        auto ten = [&](scope& calls) -> task<void> {
          for (int i = round; i < round + 10; ++i) calls.spawn(call(workers, i));
          co_return;
        };
        co_await scope::run(ten);
      }
      for (const worker_status& w : workers.workers()) {
        CHECK(w.epoch == 1);
        co_await workers.drain(w.id);
      }
      s.cancel();
    };
    co_await scope::run(body);
    asked.close();
  };
  auto leading = a.rt.start(lead());
  std::thread stopper([&] {
    for (int left = rounds; left > 0;) {
      if (const auto i = asked.try_pop()) {
        if (*i % 2 == 0 || *i % 3 == 0) gone[std::size_t(*i)].request_stop();
        --left;
      } else {
        std::this_thread::yield();
      }
    }
  });
  a.finish(leading, 60s);
  stopper.join();
  b.finish(working, 20s);
  CHECK(other == 0);
  CHECK(stopped >= rounds / 2);
  CHECK(stopped + answered == rounds);
}

TEST_SUITE_END();

}  // namespace manyworlds::world_tests
