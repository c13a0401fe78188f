// The acceptance cases of MultiWorld's own examples, with killed processes.
#include <atomic>

#include "process_fixture.hpp"

namespace manyworlds::process_tests {

TEST_SUITE_BEGIN("process");

namespace {
constexpr std::size_t streamed_bytes = 64 * 1024;
/// Kill to error. The budget is 10 ms; a test machine may be busy.
constexpr duration notice_limit = 1s;
}  // namespace

TEST_CASE("A1: a killed sender fails only its own world") {
  for (const engine_kind e : engines()) {
    CAPTURE(name_of(e));
    site here(e);
    process first = here.worker("one");
    process second = here.worker("two");
    received one;
    received two;
    std::atomic<std::uint64_t> enough{~0ull};
    leader us(here);
    world w1 = us.form("one");
    world w2 = us.form("two");
    const pid_t pid = first.pid();
    first.order("stream one 0 65536 1000000000");
    second.order("stream two 0 65536 1000000000");
    auto taking_one =
        us.rt.start(take_stream(w1, 1, streamed_bytes, one, [] { return false; }));
    std::atomic<std::uint64_t> so_far{0};
    auto taking_two = us.rt.start(take_stream(w2, 1, streamed_bytes, two, [&] {
      so_far = two.messages;
      return two.messages >= enough;
    }));
    us.run(one.come(200));
    us.run(two.come(200));

    const auto killed = clock::now();
    first.kill();
    us.finish(taking_one);
    CHECK(one.error.cause == cause::peer_died);
    CHECK(one.error.rank == 1);
    CHECK(one.error.peer.pid == pid);
    CHECK(one.error.world == world_name("one"));
    CHECK(one.in_order);
    CHECK(one.failed_at - killed < notice_limit);

    // The other world goes on for as long as it likes.
    enough = so_far + 2000;
    us.finish(taking_two);
    CHECK(!two.error);
    CHECK(two.in_order);
    CHECK(two.longest_gap < 1s);
    CHECK(w2.state() == world_state::up);
    us.run(w2.leave());
    second.expect("over two closed");
    CHECK(second.end() == 0);
  }
}

TEST_CASE(
    "A2: one coroutine that serves both worlds in turn goes on with the healthy one") {
  for (const engine_kind e : engines()) {
    CAPTURE(name_of(e));
    site here(e);
    process first = here.worker("one");
    process second = here.worker("two");
    failure error;
    clock::time_point failed_at{};
    std::uint64_t before = 0;
    std::uint64_t after = 0;
    leader us(here);
    world w1 = us.form("one");
    world w2 = us.form("two");
    first.order("stream one 0 65536 1000000000");
    second.order("stream two 0 65536 1000000000");
    auto serve_both = [&]() -> task<void> {
      std::vector<std::uint64_t> message(streamed_bytes / 8);
      while (after < 500) {
        if (!error) {
          const auto got = co_await outcome(w1.recv(message, from(1)));
          if (!got) failed_at = clock::now();
          error = got.error();
        }
        co_await w2.recv(message, from(1));
        ++(error ? after : before);
        // In the middle of the stream, from the reactor's own thread.
        if (before == 200) first.send_kill();
      }
    };
    us.run(serve_both());
    CHECK(error.cause == cause::peer_died);
    CHECK(error.rank == 1);
    CHECK(after == 500);
    CHECK(w2.state() == world_state::up);
    us.run(w2.leave());
    CHECK(second.end() == 0);
  }
}

TEST_CASE(
    "A3: when the leader is killed, each worker learns it in its own world and ends in "
    "order") {
  for (const engine_kind e : engines()) {
    CAPTURE(name_of(e));
    site here(e);
    process boss = here.member();
    boss.order("world one 0 2");
    boss.order("world two 0 2");
    process worker = here.worker("two");
    leader us(here);
    world w = us.form("one", 1);
    worker.expect("formed two");
    boss.order("echo one 1 64");
    worker.order("stream two 0 65536 1000000000");
    us.run(ping(w, 0, 100));
    auto waiting = us.rt.start(failure_of_receiving(w, 0));
    const pid_t pid = boss.pid();
    const auto killed = clock::now();
    boss.kill();
    const failure error = us.finish(waiting);
    CHECK(clock::now() - killed < notice_limit);
    CHECK(error.cause == cause::peer_died);
    CHECK(error.rank == 0);
    CHECK(error.peer.pid == pid);
    CHECK(worker.expect("over two") == "over two peer_died 0 " + std::to_string(pid));
    worker.expect("error two peer_died 0");
    CHECK(worker.end() == 0);
  }
}

TEST_CASE(
    "A4: in a single world the death of one member ends it for all, and none hangs") {
  for (const engine_kind e : engines()) {
    CAPTURE(name_of(e));
    site here(e);
    process survivor = here.member();
    process victim = here.member();
    survivor.order("world all 1 3");
    victim.order("world all 2 3");
    leader us(here);
    world w = us.form("all", 0, 3);
    survivor.order("park all 0 3");
    survivor.expect("parked all");
    auto from_survivor = us.rt.start(failure_of_receiving(w, 1));
    auto from_victim = us.rt.start(failure_of_receiving(w, 2));
    const pid_t pid = victim.pid();
    victim.kill();
    for (auto* waiting : {&from_survivor, &from_victim}) {
      const failure error = us.finish(*waiting);
      CHECK(error.cause == cause::peer_died);
      CHECK(error.rank == 2);
      CHECK(error.peer.pid == pid);
    }
    CHECK(us.run(failure_of_receiving(w, 1)).rank == 2);
    survivor.expect("over all peer_died 2 " + std::to_string(pid));
    survivor.expect("error all peer_died 2");
    survivor.order("send all 0 0 late");
    survivor.expect("error all peer_died 2");
    CHECK(survivor.end() == 0);
  }
}

TEST_SUITE_END();

}  // namespace manyworlds::process_tests
