// What a session tells of its workers and calls, and what it does unasked (S-c, S-e;
// disco A52, A59).
#include <csignal>

#include "manyworlds/coro/when_all.hpp"
#include "manyworlds/coro/within.hpp"
#include "session_fixture.hpp"

namespace manyworlds::spmd_tests {

namespace {

/// The next event of that kind.
task<session_event> awaited_event(session_events events, session_event_kind kind) {
  for (;;) {
    session_event e = co_await within(events.next(), 30s);
    if (e.kind == kind) co_return e;
  }
}

void kill_worker(const session& s, int worker, int number) {
  const auto pid = static_cast<pid_t>(s.describe(worker).pid);
  REQUIRE(pid > 0);
  ::kill(pid, number);
}

session_options with_replacements(std::size_t times) {
  session_options limits;
  limits.respawn = {.times = times, .per = 10min};
  return limits;
}

}  // namespace

TEST_CASE("a session tells in order how a worker is lost and replaced") {
  in_session(worker_kind::processes, 2, [](session& s) -> task<void> {
    const session_events events = s.events();
    kill_worker(s, 1, SIGKILL);
    const session_event lost = co_await awaited_event(events, session_event_kind::lost);
    CHECK(lost.worker == 1);
    CHECK(lost.incarnation == 1);
    CHECK(lost.text.find("SIGKILL") != std::string::npos);
    co_await s.respawn(1);
    const session_event ready = co_await awaited_event(events, session_event_kind::ready);
    CHECK(ready.worker == 1);
    CHECK(ready.incarnation == 2);
    const session_event replaced =
        co_await awaited_event(events, session_event_kind::replaced);
    CHECK(replaced.incarnation == 2);
    CHECK(events.missed() == 0);
  });
}

TEST_CASE("a session tells which call failed on which worker, and why") {
  in_each_kind(2, [](session& s) -> task<void> {
    const session_events events = s.events();
    const refusal told = co_await refusal_of(s.call(fails_on, 1));
    const session_event e =
        co_await awaited_event(events, session_event_kind::call_failed);
    CHECK(e.worker == 1);
    CHECK(e.call == told.call);
    CHECK(e.cause == cause::handler_failed);
    CHECK(e.text.find("asked to fail 1") != std::string::npos);
  });
}

TEST_CASE(
    "S-c: a session that ends tells no failure of what its workers have done well") {
  in_each_kind(2, [](session& s) -> task<void> {
    const session_events events = s.events();
    // Of worker 0 no answer is asked.
    CHECK(co_await s.call(add_one, 1).from(1) == 2);
    static_cast<void>(co_await s.issue(add_one, 1));
    co_await s.close();
    std::vector<session_event_kind> told;
    const auto hear = [&]() -> task<void> {
      for (;;) told.push_back((co_await events.next()).kind);
    };
    CHECK_THROWS_AS(co_await within(hear(), 30s), world_error);
    CHECK(std::ranges::count(told, session_event_kind::call_failed) == 0);
  });
}

TEST_CASE("a call that the loss of a worker fails is told of with that worker") {
  in_session(worker_kind::processes, 3, [](session& s) -> task<void> {
    // At times its end is noticed first by those that wait for it.
    for (int round = 0; round < 20; ++round) {
      (void)co_await s.call(rank_here).all();
      const session_events events = s.events();
      auto killing = [&]() -> task<void> {
        co_await sleep_for(5ms);
        kill_worker(s, 2, SIGKILL);
      };
      auto entering = [&]() -> task<refusal> {
        co_return co_await refusal_of(s.call(all_but_one_enter, 2, 20'000).within(20s));
      };
      const auto [nothing, told] = co_await when_all(killing(), entering());
      const session_event e =
          co_await awaited_event(events, session_event_kind::call_failed);
      CHECK(e.call == told.call);
      // Worker 2, but where a busy machine takes too long to notice its end.
      REQUIRE(!told.workers.empty());
      CHECK(e.worker == told.workers[0].worker);
      CHECK(e.cause == told.cause);
      co_await s.respawn(2);
    }
  });
}

TEST_CASE("a session that closes ends a worker that joins meanwhile") {
  in_session(
      worker_kind::processes, 2,
      [](session& s) -> task<void> {
        const mesh first = s.mesh({0});
        co_await first.issue(sleep_ms, 1000);
        kill_worker(s, 1, SIGKILL);
        while (s.describe(1).state == worker_state::ready) co_await yield();
        // It closes here: the replacement is on its way, and the call is not over.
        while (s.describe(1).state == worker_state::lost) co_await yield();
      },
      with_replacements(1));
}

TEST_CASE("replacements that were asked for cost nothing of the budget") {
  in_session(
      worker_kind::processes, 1,
      [](session& s) -> task<void> {
        const session_events events = s.events();
        for (int i = 0; i < 3; ++i) co_await s.respawn(0);
        CHECK(s.describe(0).incarnation == 4);
        for (int i = 0; i < 3; ++i) {
          const session_event e =
              co_await awaited_event(events, session_event_kind::replaced);
          CHECK(e.worker == 0);
        }
        kill_worker(s, 0, SIGKILL);
        const session_event e =
            co_await awaited_event(events, session_event_kind::replaced);
        CHECK(e.incarnation == 5);
      },
      with_replacements(1));
}

TEST_CASE("who listens to a session is told of its end, and of what was missed") {
  runtime rt;
  auto whole = [&]() -> task<void> {
    session_options limits;
    // No silence of a busy machine is told beside.
    limits.suspect_after = 10min;
    limits.lost_after = 20min;
    session s = co_await start_session(rt, worker_kind::threads, 1, limits);
    const session_events few = s.events(1);
    (void)co_await refusal_of(s.call(fails_on, 0));
    (void)co_await refusal_of(s.call(fails_on, 0));
    co_await s.close();
    const session_event last = co_await few.next();
    CHECK(last.kind == session_event_kind::call_failed);
    CHECK(last.call == 2);
    CHECK(few.missed() == 1);
    enum cause why = cause::none;
    try {
      (void)co_await few.next();
    } catch (const world_error& e) {
      why = e.cause();
    }
    CHECK(why == cause::closed);
  };
  rt.run([](task<void> all) -> task<void> {
    co_await within(std::move(all), 60s);
  }(whole()));
}

TEST_CASE("a worker that is silent is suspect, and recovers when it is heard again") {
  session_options limits;
  limits.suspect_after = 200ms;
  limits.lost_after = 10min;
  for (const worker_kind kind : {worker_kind::processes, worker_kind::nodes}) {
    CAPTURE(static_cast<int>(kind));
    const auto body = [](session& s) -> task<void> {
      const session_events events = s.events();
      kill_worker(s, 0, SIGSTOP);
      session_event e = co_await awaited_event(events, session_event_kind::suspect);
      while (e.worker != 0)
        e = co_await awaited_event(events, session_event_kind::suspect);
      kill_worker(s, 0, SIGCONT);
      do {
        e = co_await awaited_event(events, session_event_kind::recovered);
      } while (e.worker != 0);
      CHECK(co_await s.call(add_one, 1).from(0) == 2);
    };
    in_session(kind, 2, body, limits);
  }
}

TEST_CASE("a worker that is stuck, and that is free again, is told") {
  session_options limits;
  limits.grace = 50ms;
  in_each_kind(
      2,
      [](session& s) -> task<void> {
        const session_events events = s.events();
        // Its mesh is formed: nothing is left to wait for before the function.
        (void)co_await s.call(rank_here).all();
        (void)co_await refusal_of(s.issue(block_or_fail, 1, 1000));
        const session_event stuck =
            co_await awaited_event(events, session_event_kind::stuck);
        CHECK(stuck.worker == 0);
        CHECK(stuck.text == "call " + std::to_string(stuck.call) + " of block_or_fail");
        const session_event freed =
            co_await awaited_event(events, session_event_kind::freed);
        CHECK(freed.worker == 0);
        CHECK(freed.call == stuck.call);
        CHECK(s.describe(0).stuck_in.empty());
        (void)co_await refusal_of(s.sync());
      },
      limits);
}

TEST_CASE(
    "disco A59: with a budget a lost worker comes back unasked, until it is used up") {
  in_session(
      worker_kind::processes, 2,
      [](session& s) -> task<void> {
        const session_events events = s.events();
        const dref<part_of_model> w = co_await s.call(load_part, 10).replayable();
        const std::vector<int> x = ints(1);
        for (std::uint64_t incarnation = 2; incarnation <= 3; ++incarnation) {
          kill_worker(s, 1, SIGKILL);
          const session_event e =
              co_await awaited_event(events, session_event_kind::replaced);
          CHECK(e.worker == 1);
          CHECK(e.incarnation == incarnation);
          CHECK(co_await s.call(scaled_sum, w, x).from(1) == ints(21));
        }
        kill_worker(s, 1, SIGKILL);
        const session_event e =
            co_await awaited_event(events, session_event_kind::not_replaced);
        CHECK(e.worker == 1);
        CHECK(e.text.find("it was replaced 2 times within") != std::string::npos);
        CHECK(e.text.find("SIGKILL") != std::string::npos);
        CHECK(s.describe(1).state == worker_state::lost);
        // Asked, it comes back all the same.
        co_await s.respawn(1);
        CHECK(co_await s.call(scaled_sum, w, x).from(1) == ints(21));
      },
      with_replacements(2));
}

TEST_CASE("all that ask for a worker at once, and a budget, share one replacement") {
  in_session(
      worker_kind::processes, 2,
      [](session& s) -> task<void> {
        const dref<part_of_model> w = co_await s.call(load_counted, 10).replayable();
        const session_events events = s.events();
        kill_worker(s, 1, SIGKILL);
        (void)co_await awaited_event(events, session_event_kind::lost);
        auto replacing = [&]() -> task<void> { co_await s.respawn(1); };
        co_await when_all(replacing(), replacing(), replacing());
        CHECK(s.describe(1).incarnation == 2);
        CHECK(co_await s.call(loads_so_far).from(1) == 1);
      },
      with_replacements(5));
}

TEST_CASE("a replacement goes on when the one that asked for it gives up") {
  in_session(worker_kind::processes, 2, [](session& s) -> task<void> {
    const dref<part_of_model> w = co_await s.call(load_part, 10).replayable();
    const session_events events = s.events();
    kill_worker(s, 0, SIGKILL);
    (void)co_await awaited_event(events, session_event_kind::lost);
    bool was_given_up = false;
    try {
      co_await within(s.respawn(0), 0ms);
    } catch (const timed_out&) {
      was_given_up = true;
    }
    CHECK(was_given_up);
    (void)co_await awaited_event(events, session_event_kind::replaced);
    const std::vector<int> x = ints(1);
    CHECK(co_await s.call(scaled_sum, w, x).from(0) == ints(21));
  });
}

/// The microseconds of a CPU that a worker uses in as long as `awake` twice.
task<std::int64_t> used_in_a_while(const session& s) {
  const std::int64_t before = co_await s.call(cpu_time_so_far).from(0);
  co_await sleep_for(400ms);
  const std::int64_t after = co_await s.call(cpu_time_so_far).from(0);
  co_return after - before;
}

TEST_CASE("workers that were alerted look out for calls, and sleep again") {
  session_options limits;
  limits.awake = 200ms;
  in_each_kind(
      1,
      [](session& s) -> task<void> {
        // A busy machine may give it no CPU in one of these whiles.
        std::int64_t awake = 0;
        std::int64_t asleep = 0;
        const auto was_seen = [&] { return awake >= 20'000 && asleep < awake / 2; };
        for (int i = 0; i < 20 && !was_seen(); ++i) {
          s.alert();
          s.alert();
          awake = co_await used_in_a_while(s);
          asleep = co_await used_in_a_while(s);
        }
        CHECK(awake >= 20'000);
        CHECK(asleep < awake / 2);
      },
      limits);
}

}  // namespace manyworlds::spmd_tests
