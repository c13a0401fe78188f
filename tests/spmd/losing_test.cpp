// Workers of sessions that are lost, and replaced (S-e; disco A46,
// A51 to A53, A55, A56, A59, A60).
#include <algorithm>
#include <csignal>

#include "session_fixture.hpp"
#include "spmd/session_core.hpp"

namespace manyworlds::spmd_tests {

namespace {

/// Processes alone can be killed, here or on nodes.
template <class Body>
void in_processes(int workers, Body body, session_options limits = {}) {
  for (const worker_kind kind : {worker_kind::processes, worker_kind::nodes}) {
    CAPTURE(static_cast<int>(kind));
    in_session(kind, workers, body, limits);
  }
}

pid_t pid_of(const session& s, int worker) {
  const auto pid = static_cast<pid_t>(s.describe(worker).pid);
  // Of a lost one it is 0, which kill(2) takes for the whole process group.
  REQUIRE(pid > 0);
  return pid;
}

task<void> until_lost(const session& s, int worker) {
  while (s.describe(worker).state != worker_state::lost) co_await sleep_for(1ms);
}

task<void> check_all_take_part(const session& s) {
  const std::vector<int> all = co_await s.call(fails_on, 1000).all();
  const std::vector<int> wanted(s.size(), static_cast<int>(s.size()));
  CHECK(all == wanted);
}

}  // namespace

TEST_CASE(
    "disco A51, A52, A53, A55, A60, S-e: a killed worker fails the calls that need it, "
    "no others") {
  // As a process has it that has never heard of the signal.
  ::signal(SIGPIPE, SIG_DFL);
  in_processes(3, [](session& s) -> task<void> {
    co_await check_all_take_part(s);
    const mesh others = s.mesh({0, 2});
    CHECK(co_await others.call(fails_on, 1000).from(2) == 2);
    const pid_t victim = pid_of(s, 1);
    auto killing = [&]() -> task<void> {
      co_await sleep_for(20ms);
      ::kill(victim, SIGKILL);
    };
    auto entering = [&]() -> task<refusal> {
      // Two wait in a collective for the third.
      co_return co_await refusal_of(s.call(all_but_one_enter, 1, 20'000).within(20s));
    };
    auto elsewhere = [&]() -> task<refusal> {
      co_return co_await refusal_of(others.call(fails_on, 1000));
    };
    const auto [nothing, told, other] =
        co_await when_all(killing(), entering(), elsewhere());
    CHECK(told.cause == cause::peer_died);
    REQUIRE(!told.workers.empty());
    CHECK(told.workers[0].worker == 1);
    CHECK(told.says("SIGKILL"));
    CHECK(other.cause == cause::none);
    const std::vector<session_worker> all = s.describe();
    CHECK(all[1].state == worker_state::lost);
    CHECK(all[1].loss.find("SIGKILL") != std::string::npos);
    CHECK(co_await others.call(fails_on, 1000).from(0) == 2);
    const mesh left = s.shrink();
    CHECK(left.workers() == ints(0, 2));
    CHECK(co_await left.call(rank_here).all() == ints(0, 1));
    CHECK(co_await left.call(fails_on, 1000).from(2) == 2);
    const refusal refused = co_await refusal_of(s.call(add_one, 1));
    CHECK(refused.says("worker 1 is lost"));
  });
}

TEST_CASE("disco A46, A59: a worker is replaced, and has again what is replayable") {
  in_processes(3, [](session& s) -> task<void> {
    const dref<part_of_model> w = co_await s.call(load_part, 10).replayable();
    const dref<int> cache = co_await s.call(add_one, 41);
    const std::vector<int> x = ints(1);
    for (int round = 1; round <= 3; ++round) {
      const int which = round % 3;
      ::kill(pid_of(s, which), SIGKILL);
      co_await until_lost(s, which);
      co_await s.respawn(which);
      CHECK(s.describe(which).incarnation == 2);
      CHECK(co_await s.call(scaled_sum, w, x).from(which) == ints(33));
      CHECK(co_await s.call(place_alone).on(which).from(which) ==
            ints(which, which, 3, 2));
      // What cannot be made again is stale there, and good elsewhere.
      const refusal stale = co_await refusal_of(s.call(one_more, cache));
      CHECK(stale.cause == cause::register_lost);
      CHECK(stale.says("was lost with incarnation 1 of worker"));
      co_await s.call(add_one, 41).on(which).into(cache);
      CHECK(co_await s.call(one_more, cache).from(which) == 43);
    }
  });
}

TEST_CASE(
    "a worker that ends by itself, or by a signal in a call, is lost with its reason") {
  in_processes(2, [](session& s) -> task<void> {
    const refusal told = co_await refusal_of(s.call(raise_signal, SIGUSR1).on(1));
    CHECK(told.cause == cause::peer_died);
    CHECK(told.says("SIGUSR1"));
    CHECK(co_await s.call(add_one, 1).on(0).from(0) == 2);
    co_await s.respawn(1);
    co_await check_all_take_part(s);
  });
}

TEST_CASE("two that replace one worker, and a call beside, find it once and whole") {
  in_processes(2, [](session& s) -> task<void> {
    co_await check_all_take_part(s);
    for (int round = 0; round < 3; ++round) {
      ::kill(pid_of(s, 1), SIGKILL);
      co_await until_lost(s, 1);
      auto replacing = [&]() -> task<void> { co_await s.respawn(1); };
      auto calling = [&]() -> task<void> {
        const mesh turned = s.mesh({1, 0});
        for (;;) {
          if ((co_await refusal_of(turned.call(fails_on, 1000))).cause == cause::none)
            co_return;
          co_await sleep_for(1ms);
        }
      };
      co_await when_all(replacing(), replacing(), calling());
      co_await check_all_take_part(s);
    }
    // One that is given up in the middle leaves a worker that is whole all the same.
    ::kill(pid_of(s, 0), SIGKILL);
    co_await until_lost(s, 0);
    auto replacing = [](const session& of) -> task<void> { co_await of.respawn(0); };
    try {
      co_await within(replacing(s), 1ms);
    } catch (const timed_out&) {}
    if (s.describe()[0].state != worker_state::ready) co_await s.respawn(0);
    co_await check_all_take_part(s);
  });
}

TEST_CASE(
    "what was issued and had ended before a loss is made again, and has not failed") {
  in_processes(2, [](session& s) -> task<void> {
    const dref<part_of_model> made = co_await s.issue(load_part, 10).replayable();
    // Nothing awaits its end: the workers tell of it all the same.
    const detail::worker_link& link = detail::access::core_ptr(s)->link_of(1);
    const auto told = [&]() -> task<void> {
      while (link.waiting() + link.sent() > 0) co_await sleep_for(1ms);
    };
    co_await within(told(), 20s);
    ::kill(pid_of(s, 1), SIGKILL);
    co_await until_lost(s, 1);
    co_await s.respawn(1);
    const std::vector<int> one{1};
    const std::vector<int> summed = co_await s.call(scaled_sum, made, one).from(1);
    CHECK(summed == std::vector<int>{21});
  });
}

TEST_CASE("two that replace one worker make again what it had once") {
  in_processes(1, [](session& s) -> task<void> {
    const dref<int> x = co_await s.call(slow_one, 20).replayable();
    const dref<int> runs = co_await s.call(slow_one, 0).replayable();
    ::kill(pid_of(s, 0), SIGKILL);
    co_await until_lost(s, 0);
    auto replacing = [&]() -> task<void> { co_await s.respawn(0); };
    co_await when_all(replacing(), replacing());
    CHECK(s.describe(0).incarnation == 2);
    // Each run is counted by the process.
    CHECK(co_await s.call(one_more, runs).from(0) == 3);
    CHECK(x);
  });
}

TEST_CASE("a stopped worker is lost after the silence that is allowed, and then killed") {
  session_options limits;
  limits.suspect_after = 500ms;
  limits.lost_after = 2s;
  in_processes(
      2,
      [](session& s) -> task<void> {
        const pid_t victim = pid_of(s, 0);
        ::kill(victim, SIGSTOP);
        const refusal told = co_await refusal_of(s.call(fails_on, 1000).within(10s));
        CHECK(told.cause == cause::silent_peer);
        while (::kill(victim, 0) == 0) co_await sleep_for(1ms);
        // On a machine that stood still for as long, the other is lost, too.
        for (int k = 0; k < 2; ++k) {
          if (s.describe(k).state != worker_state::ready) co_await s.respawn(k);
        }
        co_await check_all_take_part(s);
      },
      limits);
}

TEST_CASE("workers that cannot begin are named at the start, with what they ended by") {
  runtime rt;
  rt.run([](runtime& on) -> task<void> {
    std::string said;
    try {
      (void)co_await session::start(on, processes{.workers = 2, .program = "/nowhere/w"});
    } catch (const std::exception& e) {
      said = e.what();
    }
    CHECK(said.find("cannot execute \"/nowhere/w\"") != std::string::npos);
    said.clear();
    try {
      (void)co_await session::start(on, processes{.workers = 2, .program = "/bin/false"});
    } catch (const world_error& e) {
      said = e.what();
      CHECK(e.cause() == cause::not_joined);
    }
    CHECK(said.find("worker 0: ") != std::string::npos);
    CHECK(said.find("exited with code 1") != std::string::npos);
  }(rt));
}

TEST_CASE("disco A56: a worker that dies in one session costs another one nothing") {
  runtime rt;
  auto whole = [&]() -> task<void> {
    session hurt = co_await start_session(rt, worker_kind::processes, 2);
    session well = co_await start_session(rt, worker_kind::processes, 2);
    int answered = 0;
    bool is_over = false;
    auto calling = [&]() -> task<void> {
      while (!is_over) {
        REQUIRE(co_await well.call(fails_on, 1000).from(0) == 2);
        ++answered;
      }
    };
    auto killing = [&]() -> task<void> {
      for (int i = 0; i < 3; ++i) {
        ::kill(pid_of(hurt, i % 2), SIGKILL);
        co_await until_lost(hurt, i % 2);
        co_await hurt.respawn(i % 2);
        co_await check_all_take_part(hurt);
      }
      is_over = true;
    };
    co_await when_all(calling(), killing());
    CHECK(answered > 3);
    co_await hurt.close();
    co_await well.close();
  };
  rt.run([](task<void> all) -> task<void> {
    co_await within(std::move(all), 60s);
  }(whole()));
}

TEST_CASE(
    "what is made again is made behind what it takes, after other replacements too") {
  in_processes(2, [](session& s) -> task<void> {
    const dref<int> a = co_await s.call(add_one, 1).replayable();
    const dref<int> b = co_await s.call(one_more, a).replayable().on(1);
    for (int round = 0; round < 4; ++round) {
      const int which = round % 2;
      ::kill(pid_of(s, which), SIGKILL);
      co_await until_lost(s, which);
      co_await s.respawn(which);
      CHECK(co_await s.call(one_more, b).on(1).from(1) == 4);
    }
  });
}

TEST_CASE("each worker makes again what it had: the call that filled it there last") {
  in_processes(2, [](session& s) -> task<void> {
    const dref<int> x = co_await s.call(add_one, 10).replayable();
    co_await s.call(add_one, 20).replayable().on(1).into(x);
    const dref<int> y = co_await s.call(add_one, 1).replayable();
    co_await s.call(add_one, 2).into(y);
    for (int which = 0; which < 2; ++which) {
      ::kill(pid_of(s, which), SIGKILL);
      co_await until_lost(s, which);
      co_await s.respawn(which);
      CHECK(co_await s.call(one_more, x).all() == ints(12, 22));
    }
    // It was filled by a call that is not made again.
    const refusal lost = co_await refusal_of(s.call(one_more, y));
    CHECK(lost.cause == cause::register_lost);
  });
}

}  // namespace manyworlds::spmd_tests
