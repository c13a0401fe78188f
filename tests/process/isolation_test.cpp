// What one world's trouble does not do to others.
#include <stop_token>

#include "process_fixture.hpp"
#include "world/world_core.hpp"

namespace manyworlds::process_tests {

TEST_SUITE_BEGIN("process");

namespace {}  // namespace

TEST_CASE("B5: cancelling a receive disturbs neither its own world nor another") {
  for (const engine_kind e : engines()) {
    CAPTURE(name_of(e));
    site here(e);
    process first = here.worker("one");
    process second = here.worker("two");
    leader us(here);
    world w1 = us.form("one");
    world w2 = us.form("two");
    second.order("echo two 0 64");
    std::atomic<bool> done{false};
    int cancelled = 0;
    auto cancel_many = [&]() -> task<void> {
      std::uint64_t word = 0;
      for (int i = 0; i < 100; ++i) {
        std::stop_source stop;
        auto body = [&](scope& s) -> task<void> {
          auto receiving = [&]() -> task<void> {
            const auto got = co_await outcome(
                w1.recv(std::span(&word, 1), from(1)).stop(stop.get_token()));
            cancelled += got.error().cause == cause::cancelled;
          };
          s.spawn(receiving);
          co_await yield();
          co_await yield();
          stop.request_stop();
        };
        co_await scope::run(body);
      }
      done = true;
    };
    auto cancelling = us.rt.start(cancel_many());
    CHECK(us.run(ping(w2, 1, 500)) < no_stall);
    us.finish(cancelling);
    CHECK(cancelled == 100);
    CHECK(w1.state() == world_state::up);
    CHECK(w2.state() == world_state::up);
    // No message was lost with them.
    first.order("echo one 0 64");
    CHECK(us.run(ping(w1, 1, 10)) < no_stall);
  }
}

TEST_CASE("B6: while a peer is stopped and its world breaks, other worlds stay healthy") {
  for (const engine_kind e : engines()) {
    CAPTURE(name_of(e));
    site here(e);
    const std::vector<std::string> limits{"heartbeat=100", "suspect=500", "broken=1000"};
    std::vector<process> peers;
    for (const char* name : {"stuck", "b", "c"})
      peers.push_back(here.worker(name, limits));
    leader us(here, 100ms);
    us.patience.suspect_after = 500ms;
    us.patience.broken_after = 1s;
    world stuck = us.form("stuck");
    world b = us.form("b");
    world c = us.form("c");
    peers[1].order("echo b 0 64");
    peers[2].order("echo c 0 64");
    peers[0].stop();
    const auto begun = clock::now();
    auto broken = us.rt.start(stuck.broken());
    // Ten times as long as the notice takes would be the same again and again.
    while (clock::now() - begun < 4s) {
      CHECK(us.run(ping(b, 1, 20)) < no_stall);
      CHECK(us.run(ping(c, 1, 20)) < no_stall);
    }
    CHECK(us.finish(broken).cause == cause::silent_peer);
    for (world* w : {&b, &c}) {
      CHECK(w->state() == world_state::up);
      CHECK(!w->is_suspect(1));
    }
  }
}

TEST_CASE("B6: a stopped store disturbs no world that is formed") {
  for (const engine_kind e : engines()) {
    CAPTURE(name_of(e));
    site here(e);
    process peer = here.worker("free", {"heartbeat=100", "suspect=500", "broken=1000"});
    leader us(here, 100ms);
    us.patience.suspect_after = 500ms;
    us.patience.broken_after = 1s;
    us.patience.form = 1s;
    world w = us.form("free");
    peer.order("echo free 0 64");
    here.store.stop();
    world other = us.describe("not possible");
    auto formed = [](world& w) -> task<failure> {
      co_return (co_await outcome(w)).error();
    };
    auto forming = us.rt.start(formed(other));
    const auto begun = clock::now();
    while (clock::now() - begun < 3s) CHECK(us.run(ping(w, 1, 20)) < no_stall);
    // The one that needs the store is told so by its deadline.
    CHECK(us.finish(forming).cause == cause::store_unreachable);
    CHECK(w.state() == world_state::up);
    CHECK(!w.is_suspect(1));
    here.store.go_on();
  }
}

TEST_CASE("B7: 64 worlds joined at once are all up and all usable") {
  constexpr int worlds = 64;
  for (const engine_kind e : engines()) {
    CAPTURE(name_of(e));
    site here(e);
    process peer = here.member();
    std::vector<world> all;
    leader us(here);
    for (int i = 0; i < worlds; ++i) {
      peer.order("world w" + std::to_string(i) + " 1 2");
      all.push_back(us.describe("w" + std::to_string(i)));
    }
    auto form_all = [&]() -> task<void> {
      auto body = [&](scope& s) -> task<void> {
        auto form_one = [](world& w) -> task<void> { co_await w; };
        for (world& w : all) s.spawn(form_one(w));
        co_return;
      };
      co_await scope::run(body);
    };
    const auto begun = clock::now();
    us.run(form_all());
    MESSAGE(name_of(e)
            << ": 64 worlds formed in "
            << std::chrono::duration<double, std::milli>(clock::now() - begun).count()
            << " ms");
    for (int i = 0; i < worlds; ++i) {
      peer.order("echo w" + std::to_string(i) + " 0 64");
    }
    for (world& w : all) us.run(ping(w, 1, 2));
    for (world& w : all) CHECK(w.state() == world_state::up);
    for (world& w : all) us.run(w.leave());
    for (int i = 0; i < worlds; ++i)
      peer.expect("over w" + std::to_string(i) + " closed");
    CHECK(peer.end() == 0);
  }
}

TEST_CASE("B8: an application that blocks its thread breaks no healthy world") {
  for (const engine_kind e : engines()) {
    CAPTURE(name_of(e));
    site here(e);
    const std::vector<std::string> limits{"heartbeat=100", "suspect=500", "broken=1000"};
    process busy = here.worker("healthy", limits);
    busy.order("world doomed 0 2");
    process victim = here.worker("doomed", limits);
    busy.expect("formed doomed");
    leader us(here, 100ms);
    us.patience.suspect_after = 500ms;
    us.patience.broken_after = 1s;
    world w = us.form("healthy");
    busy.order("echo healthy 0 64");
    us.run(ping(w, 1, 10));
    // Longer than the silence that breaks a world.
    busy.order("block 2000");
    busy.expect("blocking");
    const auto begun = clock::now();
    victim.kill();
    auto waiting = us.rt.start(ping(w, 1, 10));
    busy.expect("unblocked");
    CHECK(clock::now() - begun > access::core(w).options().broken_after);
    us.finish(waiting);
    CHECK(w.state() == world_state::up);
    CHECK(w.history().times_suspect == 0);
    busy.expect("over doomed peer_died 1");
    us.run(w.leave());
    CHECK(busy.end() == 0);
  }
}

TEST_SUITE_END();

}  // namespace manyworlds::process_tests
