// Forming worlds while processes come and go.
#include "process_fixture.hpp"
#include "support/eventually.hpp"
#include "support/footprint.hpp"
#include "support/sanitizers.hpp"

namespace manyworlds::process_tests {

TEST_SUITE_BEGIN("process");

namespace {

task<failure> outcome_of_forming(world& w) { co_return (co_await outcome(w)).error(); }

}  // namespace

TEST_CASE("B9: a name is formed again at once, a hundred times, and nothing grows") {
  for (const engine_kind e : engines()) {
    CAPTURE(name_of(e));
    site here(e);
    leader us(here);
    testing::footprint warm;
    duration longest{0};
    for (std::uint64_t i = 1; i <= 100; ++i) {
      process worker = here.worker("again");
      worker.order("echo again 0 64");
      const auto begun = clock::now();
      world w = us.form("again");
      longest = std::max<duration>(longest, clock::now() - begun);
      CHECK(w.epoch() == i);
      us.run(ping(w, 1, 3));
      const pid_t pid = worker.pid();
      worker.kill();
      const failure why = us.broken(w);
      CHECK(why.cause == cause::peer_died);
      CHECK(why.peer.pid == pid);
      CHECK(why.epoch == i);
      us.run(w.drained());
      if (i == 20) warm = testing::footprint();
    }
    // The last peer's link goes in turns that follow the end of its world.
    testing::footprint now;
    CHECK(testing::eventually([&] {
      now = testing::footprint();
      return now.descriptors <= warm.descriptors;
    }));
    CHECK(now.threads <= warm.threads);
    // In 80 epochs: far below what a leaked buffer, frame or view each would be. The
    // address sanitizer keeps freed memory, to find uses after the free.
    if (!testing::has_address_sanitizer) {
      CHECK(now.resident_bytes < warm.resident_bytes + (std::size_t{4} << 20));
    }
    CHECK(longest < 5s);
  }
}

TEST_CASE(
    "B10: no member joins: the forming ends by its deadline, naming the rank; a retry "
    "works") {
  for (const engine_kind e : engines()) {
    CAPTURE(name_of(e));
    site here(e);
    process other = here.worker("other");
    leader us(here);
    world healthy = us.form("other");
    other.order("echo other 0 64");
    us.patience.form = 600ms;
    world lonely = us.describe("lonely");
    const auto begun = clock::now();
    auto forming = us.rt.start(outcome_of_forming(lonely));
    us.run(ping(healthy, 1, 50));
    const failure why = us.finish(forming);
    CHECK(why.cause == cause::not_joined);
    CHECK(why.rank == 1);
    CHECK(why.operation == operation_kind::form);
    CHECK(clock::now() - begun >= 600ms);
    CHECK(clock::now() - begun < 3s);
    us.patience.form = 20s;
    process worker = here.worker("lonely");
    lonely = us.form("lonely");
    worker.order("echo lonely 0 64");
    us.run(ping(lonely, 1, 3));
    CHECK(healthy.state() == world_state::up);
  }
}

TEST_CASE("B10: a member dies at any moment of the rendezvous; its replacement gets in") {
  for (const engine_kind e : engines()) {
    CAPTURE(name_of(e));
    site here(e);
    leader us(here);
    for (int i = 0; i < 16; ++i) {
      CAPTURE(i);
      world w = us.describe("meeting");
      auto forming = us.rt.start(outcome_of_forming(w));
      process early = here.worker("meeting");
      early.expect("joining");
      // Where it dies is the subject: the whole rendezvous takes a few milliseconds.
      const auto dies_at = clock::now() + i * 400us;
      while (clock::now() < dies_at) continue;
      early.kill();
      process replacement = here.worker("meeting");
      replacement.order("echo meeting 0 64");
      failure why = us.finish(forming);
      if (!why) {
        // Formed, with the one or the other.
        auto alive = [](world& w) -> task<failure> {
          std::uint64_t word[8] = {};
          auto sent = co_await outcome(w.send(std::span(word), to(1)));
          if (!sent) co_return sent.error();
          auto echoed = co_await outcome(w.recv(std::span(word), from(1)));
          co_return echoed.error();
        };
        why = us.run(alive(w));
      }
      if (why) {
        CHECK(why.cause == cause::peer_died);
        us.run(w.drained());
        w = us.form("meeting");
        us.run(ping(w, 1, 3));
      }
      CHECK(w.state() == world_state::up);
      CHECK(w.view().member(1).identity.pid == replacement.pid());
      us.run(w.leave());
      CHECK(replacement.end() == 0);
    }
  }
}

TEST_CASE(
    "B10: the leader dies at any moment of the rendezvous; the next one forms the "
    "world") {
  for (const engine_kind e : engines()) {
    CAPTURE(name_of(e));
    site here(e);
    leader us(here);
    for (int i = 0; i < 8; ++i) {
      CAPTURE(i);
      world w = us.describe("court", 1);
      auto forming = us.rt.start(outcome_of_forming(w));
      process early = here.member();
      early.order("world court 0 2");
      early.expect("joining");
      const auto dies_at = clock::now() + i * 700us;
      while (clock::now() < dies_at) continue;
      early.kill();
      process next = here.member();
      next.order("world court 0 2");
      const failure why = us.finish(forming);
      if (why || w.view().member(0).identity.pid != next.pid()) {
        CHECK((why ? why : us.broken(w)).cause == cause::peer_died);
        us.run(w.drained());
        w = us.form("court", 1);
      }
      next.order("echo court 1 64");
      us.run(ping(w, 0, 3));
      us.run(w.leave());
      CHECK(next.end() == 0);
    }
  }
}

TEST_CASE(
    "B11: the first message may go either way, and its receive may be posted long "
    "before") {
  for (const engine_kind e : engines()) {
    CAPTURE(name_of(e));
    site here(e);
    leader us(here);
    for (const rank_t receiver : {0, 1}) {
      CAPTURE(receiver);
      const std::string name = "first" + std::to_string(receiver);
      process peer = here.member();
      peer.order("world " + name + (receiver == 0 ? " 1 2" : " 0 2"));
      world w = us.form(name, receiver);
      std::array<char, 64> text{};
      auto receiving = [&]() -> task<void> { co_await w.recv(text, from(1 - receiver)); };
      auto got = us.rt.start(receiving());
      // Long before: the time is the subject.
      CHECK(!got.wait_for(1s));
      const auto asked = clock::now();
      peer.order("send " + name + " " + std::to_string(receiver) + " 0 first");
      us.finish(got);
      CHECK(clock::now() - asked < 1s);
      CHECK(std::string(text.data()) == "first");
      us.run(w.leave());
      CHECK(peer.end() == 0);
    }
    for (const rank_t receiver : {0, 1}) {
      CAPTURE(receiver);
      const std::string name = "second" + std::to_string(receiver);
      process peer = here.member();
      peer.order("world " + name + (receiver == 0 ? " 0 2" : " 1 2"));
      world w = us.form(name, 1 - receiver);
      peer.order("recv " + name + " " + std::to_string(1 - receiver) + " 0");
      auto sending = [&]() -> task<void> {
        std::array<char, 64> text{"second"};
        co_await w.send(text, to(receiver)).delivered();
      };
      us.run(sending());
      CHECK(peer.expect("got " + name) == "got " + name + " 0 second");
      us.run(w.leave());
      CHECK(peer.end() == 0);
    }
  }
}

TEST_SUITE_END();

}  // namespace manyworlds::process_tests
