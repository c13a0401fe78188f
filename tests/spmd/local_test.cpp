// What worker 0 holds, seen from the controller, if it is a thread of its process.
#include <algorithm>
#include <csignal>
#include <future>

#include "session_fixture.hpp"

namespace manyworlds::spmd_tests {

namespace {

/// Runs `body(session&)` with sessions of which worker 0 is a thread of this process.
template <class Body>
void in_each_kind_with_locals(int workers, Body body, session_options limits = {}) {
  for (const worker_kind kind : {worker_kind::threads, worker_kind::mixed}) {
    CAPTURE(kind == worker_kind::threads);
    in_session(kind, workers, body, limits);
  }
}

/// Kills what runs a worker, which is another process than this.
task<void> kill_process_of(const session& s, int worker) {
  const auto pid = static_cast<pid_t>(s.describe(worker).pid);
  REQUIRE(pid > 0);
  REQUIRE(pid != ::getpid());
  ::kill(pid, SIGKILL);
  while (s.describe(worker).state != worker_state::lost) co_await sleep_for(1ms);
}

/// Like `refusal_of` of a call.
template <class T>
task<refusal> refusal_of_local(const session& s, const dref<T>& of) {
  try {
    (void)co_await s.local(of);
  } catch (const call_error& e) {
    co_return refusal{e.cause(), e.what(), e.workers(), e.call(), e.function()};
  }
  co_return refusal{};
}

/// A value of which the controller can see the end.
struct watched {
  std::shared_ptr<int> held;
};
constexpr remote_function<watched(int)> watch{"watch", alone};

/// Says that it has shown a value, and has not.
constexpr remote_function<void(const int&)> lying{"mw.local", alone};

}  // namespace

TEST_CASE("worker 0 in the controller: the other workers are processes, and all meet") {
  in_session(worker_kind::mixed, 3, [](session& s) -> task<void> {
    std::vector<int> pids = co_await s.call(process_here).all();
    CHECK(pids[0] == ::getpid());
    CHECK(s.describe(0).pid == 0);
    CHECK(pids[1] == s.describe(1).pid);
    CHECK(pids[2] == s.describe(2).pid);
    std::ranges::sort(pids);
    CHECK(std::ranges::adjacent_find(pids) == pids.end());
    CHECK(co_await s.call(fails_on, 1000).all() == ints(3, 3, 3));
    const refusal told = co_await refusal_of(s.call(fails_on, 0));
    CHECK(told.cause == cause::handler_failed);
    CHECK(co_await s.call(fails_on, 1000).all() == ints(3, 3, 3));
  });
}

TEST_CASE(
    "local: the value itself, behind what was issued before and ahead of the rest") {
  in_each_kind_with_locals(2, [](session& s) -> task<void> {
    const dref<int> x = co_await s.issue(slow_one, 20);
    co_await s.issue(add_to, x, 1000);
    int& here = co_await s.local(x);
    CHECK(here > 1000);
    CHECK(&co_await within(s.local(x), 10s) == &here);
    here = 7;
    // The other worker has its own.
    const std::vector<int> seen = co_await s.call(one_more, x).all();
    CHECK(seen[0] == 8);
    CHECK(seen[1] > 1000);
    co_await s.call(add_to, x, 3);
    CHECK(here == 10);
    CHECK(&co_await s.local(x) == &here);
  });
}

TEST_CASE("local: a tensor that was put is changed in place, and the next call sees it") {
  in_each_kind_with_locals(2, [](session& s) -> task<void> {
    const std::vector<float> given{1, 2, 3};
    const dref<tensor> x = co_await s.put(given);
    tensor& here = co_await s.local(x);
    REQUIRE(here.as<float>().size() == 3);
    CHECK(here.as<float>()[1] == 2);
    here.as<float>()[1] = 20;
    co_await s.all_reduce(x, sum);
    const tensor there = co_await s.copy_from(x, 1);
    CHECK(there.as<float>()[1] == 22);
    CHECK(here.as<float>()[1] == 22);
  });
}

TEST_CASE("local: what is no value and what an any_function gave") {
  in_each_kind_with_locals(2, [](session& s) -> task<void> {
    const dref<part_of_model> w = co_await s.call(load_part, 10);
    (co_await s.local(w)).scale = 5;
    CHECK(co_await s.call(scaled_sum, w, ints(1)).from(1) == ints(16));
    dref<any_value> given = co_await s.call(any_function("scale_of", alone), 1, 2);
    const auto some = std::move(given).as<part_of_model>();
    CHECK((co_await s.local(some)).scale == 2);
  });
}

TEST_CASE("local: what worker 0 does not hold is refused by its reason") {
  in_each_kind_with_locals(3, [](session& s) -> task<void> {
    const dref<part_of_model> other = co_await s.call(load_other, 1);
    const refusal wrong = co_await refusal_of_local(s, other);
    CHECK(wrong.cause == cause::handler_failed);
    CHECK(wrong.says("a register of int, where "));
    CHECK(wrong.says("part_of_model is wanted"));

    const mesh rest = s.mesh({1, 2});
    const dref<int> elsewhere = co_await rest.call(add_one, 1);
    const refusal absent = co_await refusal_of_local(s, elsewhere);
    CHECK(absent.cause == cause::invalid_argument);
    CHECK(absent.says("worker 0 has no register of call"));

    const dref<int> failed = co_await s.issue(fails_on, 1);
    CHECK((co_await refusal_of(s.sync())).function == "fails_on");
    const refusal never = co_await refusal_of_local(s, failed);
    CHECK(never.cause == cause::register_lost);
    CHECK(never.says("of fails_on, which should have made an argument, failed"));

    CHECK_THROWS_WITH_AS((void)s.local(dref<int>()), "a dref that refers to nothing",
                         std::invalid_argument);
    CHECK_THROWS_AS((void)session().local(elsewhere), std::invalid_argument);
    CHECK(co_await s.call(fails_on, 1000).from(0) == 3);
  });
}

TEST_CASE("local: a dref of another session, or that is dropped meanwhile, is refused") {
  runtime rt;
  rt.run([](runtime& on) -> task<void> {
    session s = co_await start_session(on, worker_kind::threads, 1);
    session t = co_await start_session(on, worker_kind::threads, 1);
    const dref<int> of_t = co_await t.call(add_one, 1);
    CHECK_THROWS_WITH_AS((void)s.local(of_t), "a dref of another session",
                         std::invalid_argument);
    dref<int> x = co_await s.call(add_one, 1);
    co_await s.issue(sleep_ms, 50);
    auto dropping = [&]() -> task<void> {
      co_await yield();
      x = dref<int>();
    };
    const auto [told, nothing] = co_await when_all(refusal_of_local(s, x), dropping());
    CHECK(told.cause == cause::register_lost);
    CHECK(told.says("its dref was dropped"));
    co_await t.close();
    CHECK_THROWS_AS((void)s.local(of_t), std::invalid_argument);
  }(rt));
}

TEST_CASE(
    "local: a session with worker 0 in a process of its own refuses it, and goes on") {
  in_session(worker_kind::processes, 2, [](session& s) -> task<void> {
    const dref<int> x = co_await s.call(add_one, 1);
    const refusal told = co_await refusal_of_local(s, x);
    CHECK(told.cause == cause::invalid_argument);
    CHECK(told.says("worker 0 is in another process"));
    // Its worker would not show it either.
    const refusal asked =
        co_await refusal_of(s.call(any_function("mw.local", alone), x).on(0));
    CHECK(asked.cause == cause::handler_failed);
    CHECK(asked.says("in another process than the controller"));
    CHECK(co_await s.call(one_more, x).all() == ints(3, 3));
  });
}

TEST_CASE("local: a worker that only says it has shown a value is not believed") {
  const function_table liar{{add_one, [](int x) { return x; }},
                            {lying, [](const int&) {}}};
  runtime rt;
  rt.run([](runtime& on, const function_table& functions) -> task<void> {
    session s = co_await session::start(on, threads(1, functions));
    const dref<int> x = co_await s.call(add_one, 1);
    const refusal told = co_await refusal_of_local(s, x);
    CHECK(told.cause == cause::protocol_error);
    CHECK(co_await s.call(add_one, 1).from(0) == 1);
    co_await s.close();
  }(rt, liar));
}

TEST_CASE("local: given up, it leaves the session and later ones as they were") {
  in_each_kind_with_locals(2, [](session& s) -> task<void> {
    const dref<int> x = co_await s.call(add_one, 1);
    for (int i = 0; i < 20; ++i) {
      co_await s.issue(sleep_ms, 2);
      auto looking = [](const session& of, const dref<int>& at) -> task<int> {
        co_return co_await of.local(at);
      };
      auto waiting = [](int turns) -> task<int> {
        for (int turn = 0; turn < turns; ++turn) co_await yield();
        co_return 2;
      };
      const auto [seen, other] = co_await when_any(looking(s, x), waiting(i));
      CHECK(seen.value_or(2) == 2);
    }
    CHECK(co_await s.local(x) == 2);
  });
}

TEST_CASE(
    "local, S-e: a worker that is killed costs worker 0 and what it shows nothing") {
  in_session(worker_kind::mixed, 3, [](session& s) -> task<void> {
    const dref<int> x = co_await s.call(add_one, 1);
    int& here = co_await s.local(x);
    here = 40;
    co_await kill_process_of(s, 1);
    CHECK(s.describe(0).state == worker_state::ready);
    CHECK(here == 40);
    co_await s.call(add_to, x, 2).on(0);
    CHECK(here == 42);
    CHECK(&co_await s.local(x) == &here);
    co_await s.respawn(1);
    CHECK(co_await s.call(fails_on, 1000).all() == ints(3, 3, 3));
  });
}

TEST_CASE(
    "local: worker 0 is replaced within the process, and its old value still lives") {
  in_each_kind_with_locals(2, [](session& s) -> task<void> {
    const dref<int> x = co_await s.call(add_one, 1);
    const dref<part_of_model> w = co_await s.call(load_part, 10).replayable();
    int& old = co_await s.local(x);
    const part_of_model& first = co_await s.local(w);
    CHECK(first.scale == 10);
    co_await s.respawn(0);
    CHECK(s.describe(0).incarnation == 2);
    CHECK(co_await s.call(process_here).from(0) == ::getpid());
    CHECK(old == 2);
    const refusal stale = co_await refusal_of_local(s, x);
    CHECK(stale.cause == cause::register_lost);
    CHECK(stale.says("was lost with incarnation 1 of worker 0"));
    const part_of_model* const before = &first;
    const part_of_model& again = co_await s.local(w);
    CHECK(&again != before);
    CHECK(again.scale == 10);
    // Filled again, it is another value; the one that was shown is not touched.
    co_await s.call(add_one, 5).on(0).into(x);
    CHECK(old == 2);
    CHECK(co_await s.local(x) == 6);
    CHECK(co_await s.call(fails_on, 1000).all() == ints(2, 2));
  });
}

TEST_CASE("a worker 0 that is stuck in the controller's process is told of, not killed") {
  session_options limits;
  limits.grace = 20ms;
  limits.on_stuck = stuck_worker::kill;
  in_session(
      worker_kind::mixed, 2,
      [](session& s) -> task<void> {
        const refusal told =
            co_await refusal_of(s.call(block_ms, 500).on(0).within(20ms));
        CHECK(told.cause == cause::timed_out);
        const dref<int> x = co_await s.call(add_one, 1).on(1);
        while (s.describe(0).stuck_in.empty()) co_await sleep_for(1ms);
        CHECK(s.describe(0).state == worker_state::ready);
        const refusal refused = co_await refusal_of(s.call(add_one, 1));
        CHECK(refused.cause == cause::overdue);
        CHECK(co_await s.call(one_more, x).on(1).from(1) == 3);
        while (!s.describe(0).stuck_in.empty()) co_await sleep_for(1ms);
        CHECK(s.describe(0).incarnation == 1);
        CHECK(co_await s.call(add_one, 1).all() == ints(2, 2));
      },
      limits);
}

TEST_CASE(
    "local: what was shown lives until the session ends, and its drefs may outlive it") {
  for (const bool is_closed : {true, false}) {
    for (const worker_kind kind : {worker_kind::threads, worker_kind::mixed}) {
      CAPTURE(is_closed);
      CAPTURE(kind == worker_kind::threads);
      runtime rt;
      rt.run([](runtime& on, worker_kind of, bool closes) -> task<void> {
        session s = co_await start_session(on, of, 2);
        const dref<int> x = co_await s.call(add_one, 1);
        const dref<tensor> y = co_await s.empty(shape(4), dtype::float32);
        int& number = co_await s.local(x);
        tensor& elements = co_await s.local(y);
        number = 3;
        elements.as<float>()[3] = 4;
        CHECK(co_await s.call(one_more, x).from(0) == 4);
        if (closes) {
          co_await s.close();
          CHECK((co_await refusal_of_local(s, x)).cause == cause::closed);
        }
        s = session();
        CHECK_THROWS_AS((void)s.local(x), std::invalid_argument);
      }(rt, kind, is_closed));
    }
  }
}

TEST_CASE(
    "local: a value that was shown ends with its dref, the next one or the session") {
  const function_table functions{
      {watch, [](int x) { return watched{std::make_shared<int>(x)}; }}};
  runtime rt;
  rt.run([](runtime& on, const function_table& table) -> task<void> {
    session s = co_await session::start(on, threads(1, table));
    const dref<watched> x = co_await s.call(watch, 1);
    const std::weak_ptr<int> first = (co_await s.local(x)).held;
    co_await s.call(watch, 2).into(x);
    CHECK(!first.expired());
    const std::weak_ptr<int> second = (co_await s.local(x)).held;
    CHECK(first.expired());
    dref<watched> y = co_await s.call(watch, 3);
    const std::weak_ptr<int> third = (co_await s.local(y)).held;
    y = dref<watched>();
    co_await s.sync();
    CHECK(third.expired());
    co_await s.respawn(0);
    CHECK(*second.lock() == 2);
    co_await s.close();
    CHECK(second.expired());
  }(rt, functions));
}

TEST_CASE("a runtime that stops ends a session with worker 0 in its process") {
  for (const bool is_early : {true, false}) {
    CAPTURE(is_early);
    runtime rt;
    std::promise<void> is_there;
    auto calling =
        rt.start([](runtime& on, std::promise<void>& told, bool early) -> task<void> {
          if (early) told.set_value();
          session s = co_await start_session(on, worker_kind::mixed, 3);
          const dref<int> x = co_await s.call(add_one, 1);
          int& here = co_await s.local(x);
          if (!early) told.set_value();
          co_await s.call(sleep_ms, 60'000);
          here = 0;
        }(rt, is_there, is_early));
    REQUIRE(is_there.get_future().wait_for(20s) == std::future_status::ready);
    rt.stop();
    CHECK(calling.wait_for(20s));
  }
}

TEST_CASE("workers within a process prove its secret, as those that are processes do") {
  for (const worker_kind kind :
       {worker_kind::threads, worker_kind::mixed, worker_kind::processes}) {
    CAPTURE(static_cast<int>(kind));
    runtime_options options;
    options.secret = "of this test";
    runtime rt(options);
    rt.run([](runtime& on, worker_kind of) -> task<void> {
      session_options limits;
      limits.start = 20s;
      session s = co_await start_session(on, of, 2, limits);
      CHECK(co_await s.call(fails_on, 1000).all() == ints(2, 2));
      co_await s.close();
    }(rt, kind));
  }
}

TEST_CASE("workers that cannot begin are named beside worker 0 in the controller") {
  runtime rt;
  rt.run([](runtime& on) -> task<void> {
    std::string said;
    const in_controller here(test_functions());
    try {
      (void)co_await session::start(
          on, processes{.workers = 2, .program = "/bin/false", .worker0 = here});
    } catch (const world_error& e) {
      said = e.what();
      CHECK(e.cause() == cause::not_joined);
    }
    CHECK(said.find("worker 1: ") != std::string::npos);
    CHECK(said.find("worker 0: ") == std::string::npos);
    CHECK(said.find("exited with code 1") != std::string::npos);
  }(rt));
}

}  // namespace manyworlds::spmd_tests
