// Worlds between processes that live: order, idleness, leaving.
#include <filesystem>
#include <fstream>

#include "process_fixture.hpp"

namespace manyworlds::process_tests {

TEST_SUITE_BEGIN("process");

namespace {

/// Time on a CPU of all threads of a process.
duration cpu_time(pid_t pid) {
  duration sum{0};
  const auto threads = "/proc/" + std::to_string(pid) + "/task";
  for (const auto& thread : std::filesystem::directory_iterator(threads)) {
    std::int64_t on_cpu = 0;
    std::ifstream(thread.path() / "schedstat") >> on_cpu;
    sum += duration(on_cpu);
  }
  return sum;
}

}  // namespace

TEST_CASE("B4: ten thousand sends at once arrive in the order they were started") {
  constexpr std::uint64_t sends = 10'000;
  for (const engine_kind e : engines()) {
    CAPTURE(name_of(e));
    site here(e);
    process peer = here.worker("order");
    leader us(here);
    world w = us.form("order");
    auto send_all = [&]() -> task<void> {
      auto body = [&](scope& s) -> task<void> {
        auto send_one = [&](std::uint64_t n) -> task<void> {
          const std::uint64_t message[2] = {n, n};
          co_await w.send(std::span(message), to(1), {}, user_word(n));
        };
        for (std::uint64_t n = 0; n < sends; ++n) s.spawn(send_one, n);
        co_return;
      };
      co_await scope::run(body);
    };
    auto sending = us.rt.start(send_all());
    // The window is full before the peer takes a message.
    CHECK(!sending.wait_for(200ms));
    peer.order("drain order 0 16 10000");
    us.finish(sending);
    CHECK(peer.expect("drained order") == "drained order 10000");
    us.run(w.leave());
    CHECK(peer.end() == 0);
  }
}

TEST_CASE("B13: a thousand parked receives in 64 worlds cost no CPU") {
  constexpr int worlds = 64;
  // A span of time that is measured, not waited for.
  constexpr duration idle_span = 3s;
  for (const engine_kind e : engines()) {
    CAPTURE(name_of(e));
    site here(e);
    std::vector<process> members;
    for (const int rank : {0, 1}) {
      members.push_back(here.member());
      for (int i = 0; i < worlds; ++i) {
        const std::string name = "idle" + std::to_string(i);
        const std::string self = std::to_string(rank);
        const std::string peer = std::to_string(1 - rank);
        members.back().order("world " + name + " " + self + " 2");
        members.back().order("park " + name + " " + peer + " 16");
      }
    }
    for (process& p : members) {
      for (int i = 0; i < worlds; ++i) p.expect("parked idle" + std::to_string(i));
    }
    std::vector<duration> before;
    for (process& p : members) before.push_back(cpu_time(p.pid()));
    const auto begun = clock::now();
    std::this_thread::sleep_for(idle_span);
    for (std::size_t i = 0; i < members.size(); ++i) {
      const duration used = cpu_time(members[i].pid()) - before[i];
      const double share = std::chrono::duration<double>(used) /
                           std::chrono::duration<double>(clock::now() - begun);
      MESSAGE(name_of(e) << ": " << share * 100 << " % of a core");
      CHECK(share < 0.03);
    }
    for (process& p : members) CHECK(!p.has_said("error"));
  }
}

TEST_CASE(
    "B14: a member that leaves delivers what it sent; the others see it closed, at "
    "once") {
  for (const engine_kind e : engines()) {
    CAPTURE(name_of(e));
    site here(e);
    process peer = here.worker("ends");
    leader us(here);
    world w = us.form("ends");
    peer.order("drain ends 0 65536 100");
    peer.order("park ends 0 3");
    auto send_and_leave = [&]() -> task<void> {
      std::vector<std::uint64_t> message(8192);
      for (std::uint64_t n = 0; n < 100; ++n) {
        message.front() = message.back() = n;
        co_await w.send(message, to(1), {}, user_word(n));
      }
      co_await w.leave();
    };
    const auto begun = clock::now();
    us.run(send_and_leave());
    CHECK(w.state() == world_state::closed);
    CHECK(w.failure().cause == cause::closed);
    peer.expect("drained ends 100");
    peer.expect("over ends closed 0");
    peer.expect("error ends closed 0");
    // No limit was waited for: the shortest is a second.
    CHECK(clock::now() - begun < 1s);
    CHECK(peer.end() == 0);
  }
}

TEST_CASE("B14: when the others leave, what waits for them is closed, not broken") {
  for (const engine_kind e : engines()) {
    CAPTURE(name_of(e));
    site here(e);
    process peer = here.worker("ends");
    leader us(here);
    world w = us.form("ends");
    auto waiting = us.rt.start(failure_of_receiving(w, 1));
    const auto begun = clock::now();
    peer.order("leave ends");
    CHECK(us.finish(waiting).cause == cause::closed);
    CHECK(us.broken(w).cause == cause::closed);
    CHECK(w.state() == world_state::closed);
    peer.expect("left ends");
    CHECK(clock::now() - begun < 1s);
    CHECK(us.run(failure_of_receiving(w, 1)).cause == cause::closed);
    // It was no failure: the name is free for the next epoch.
    process next = here.worker("ends");
    next.order("echo ends 0 64");
    const std::uint64_t epoch = w.epoch();
    w = us.form("ends");
    CHECK(w.epoch() > epoch);
    us.run(ping(w, 1, 3));
    CHECK(peer.end() == 0);
  }
}

TEST_SUITE_END();

}  // namespace manyworlds::process_tests
