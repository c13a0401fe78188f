// Calls of sessions that fail: ended on all workers, told once, and the session goes on
// (S-b, S-c; disco A25, A47 to A50, A57, A58).
#include <future>
#include <stop_token>

#include "session_fixture.hpp"

namespace manyworlds::spmd_tests {

namespace {

/// The session is as good as new: its mesh has a world, and all take part.
task<void> check_all_work(const session& s) {
  const std::vector<int> all = co_await s.call(fails_on, 1000).all();
  const std::vector<int> wanted(s.size(), static_cast<int>(s.size()));
  CHECK(all == wanted);
}

}  // namespace

TEST_CASE("disco A47, S-b: what throws on one worker is ended on all, and named") {
  in_each_kind(3, [](session& s) -> task<void> {
    for (int which = 0; which < 3; ++which) {
      const refusal told = co_await refusal_of(s.call(fails_on, which));
      CHECK(told.cause == cause::handler_failed);
      CHECK(told.function == "fails_on");
      REQUIRE(told.workers.size() == 1);
      CHECK(told.workers[0].worker == which);
      CHECK(told.workers[0].text == "asked to fail " + std::to_string(which));
      CHECK(told.says("asked to fail"));
      co_await check_all_work(s);
    }
  });
}

TEST_CASE("a call's error says in which line it was awaited") {
  in_session(worker_kind::threads, 1, [](session& s) -> task<void> {
    const auto line_of = [](const call_error& e) {
      CHECK(std::string_view(e.where().file_name()).ends_with("failing_test.cpp"));
      return e.where().line();
    };
    const unsigned before = source_position().line();
    unsigned at = 0;
    try {
      static_cast<void>(co_await s.call(fails_on, 0));
    } catch (const call_error& e) {
      at = line_of(e);
    }
    CHECK(at == before + 3);
    // Of an issued one too, which fails elsewhere.
    const dref<int> x = co_await s.issue(fails_on, 0);
    try {
      co_await s.sync();
    } catch (const call_error& e) {
      at = line_of(e);
    }
    CHECK(at == before + 9);
    CHECK(x);
    // Of one that a scope awaits: the line that spawned it.
    try {
      co_await scope::run([&](scope& children) -> task<void> {
        children.spawn(s.call(nowhere));
        co_return;
      });
    } catch (const call_error& e) {
      at = line_of(e);
    }
    CHECK(at == before + 20);
  });
}

TEST_CASE("disco A49: what throws on all workers is one error") {
  in_each_kind(3, [](session& s) -> task<void> {
    const refusal told = co_await refusal_of(s.call(fails_on, -1));
    CHECK(told.cause == cause::handler_failed);
    CHECK(told.workers.size() >= 1);
    co_await check_all_work(s);
  });
}

TEST_CASE(
    "disco A50, S-c: the error of an issued call is told once, and what takes it fails") {
  in_each_kind(2, [](session& s) -> task<void> {
    const dref<int> x = co_await s.issue(fails_on, 1);
    const dref<int> y = co_await s.issue(one_more, x);
    const refusal first = co_await refusal_of(s.sync());
    CHECK(first.function == "fails_on");
    // The one that takes what was never made has its own error.
    const refusal second = co_await refusal_of(s.sync());
    CHECK((second.cause == cause::none || second.cause == cause::register_lost));
    if (second.cause == cause::register_lost && second.function == "one_more") {
      CHECK(second.says("worker 1, incarnation 1: asked to fail 1"));
      REQUIRE(!second.workers.empty());
      CHECK(second.workers[0].worker == 1);
    }
    co_await s.sync();
    const refusal refused = co_await refusal_of(s.call(one_more, x));
    CHECK(refused.cause == cause::register_lost);
    CHECK(refused.says("of fails_on, which should have made an argument, failed"));
    CHECK(refused.says("worker 1, incarnation 1: asked to fail 1"));
    CHECK(y);
    // Its own await tells it too.
    const dref<int> z = co_await s.issue(fails_on, 0);
    bool threw = false;
    try {
      co_await z;
    } catch (const call_error& e) {
      threw = e.function() == "fails_on";
    }
    CHECK(threw);
    co_await s.sync();
    enum cause again = cause::none;
    try {
      co_await z;
    } catch (const call_error& e) {
      again = e.cause();
    }
    CHECK(again == cause::register_lost);
    co_await check_all_work(s);
  });
}

TEST_CASE("disco A57: a call that is late is ended on all, and its reply is lost") {
  in_each_kind(2, [](session& s) -> task<void> {
    for (int i = 0; i < 3; ++i) {
      const refusal late = co_await refusal_of(s.call(sleep_ms, 20'000).within(20ms));
      CHECK(late.cause == cause::timed_out);
      CHECK(late.says("not ended by worker 0, 1"));
      CHECK(co_await s.call(add_one, i).from(1) == i + 1);
    }
    co_await check_all_work(s);
  });
}

TEST_CASE(
    "S-d: a call that one has ended and another has not begun never meets a later one, "
    "also when one between them is given up before it was sent") {
  in_each_kind(
      2,
      [](session& s) -> task<void> {
        co_await check_all_work(s);
        // Worker 1 is busy, and its window full: what follows waits here.
        auto busy = [&]() -> task<void> { co_await s.mesh(1).call(sleep_ms, 300); };
        auto earlier = [&]() -> task<int> {
          try {
            co_return co_await s.call(passed_on, 7).from(1);
          } catch (const call_error& e) {
            // The collective of the later one was ended, and its world with it.
            CHECK(e.cause() == cause::broken_by_user);
          }
          co_return 7;
        };
        auto later = [&]() -> task<int> {
          const refusal told =
              co_await refusal_of(s.call(all_but_one_enter, 1, 5000).within(50ms));
          CHECK(told.cause == cause::timed_out);
          co_return co_await s.call(passed_on, 9).from(1);
        };
        const auto [nothing, first, second] =
            co_await when_all(busy(), earlier(), later());
        CHECK(first == 7);
        CHECK(second == 9);
        co_await check_all_work(s);
      },
      {.window = 1});
}

TEST_CASE("a call that is stopped, or is cancelled with its task, is ended on all") {
  in_each_kind(2, [](session& s) -> task<void> {
    std::stop_source source;
    auto stopping = [&]() -> task<void> {
      co_await sleep_for(10ms);
      source.request_stop();
    };
    auto calling = [&]() -> task<refusal> {
      co_return co_await refusal_of(s.call(sleep_ms, 20'000).stop(source.get_token()));
    };
    const auto [nothing, told] = co_await when_all(stopping(), calling());
    CHECK(told.cause == cause::cancelled);
    auto cancelled = [&]() -> task<void> {
      co_await s.call(all_but_one_enter, 1, 20'000);
    };
    bool is_over = false;
    try {
      co_await within(cancelled(), 20ms);
    } catch (const timed_out&) {
      is_over = true;
    }
    CHECK(is_over);
    co_await check_all_work(s);
  });
}

TEST_CASE(
    "disco A58: a worker that skips a collective costs that call, not the session") {
  in_each_kind(3, [](session& s) -> task<void> {
    const refusal late =
        co_await refusal_of(s.call(all_but_one_enter, 2, 20'000).within(50ms));
    CHECK(late.cause == cause::timed_out);
    co_await check_all_work(s);
    // The plain functions of a mesh that nothing was done in keep its world.
    const refusal plain = co_await refusal_of(s.call(nowhere));
    CHECK(plain.cause == cause::handler_failed);
    co_await check_all_work(s);
  });
}

TEST_CASE("messages that a failed call has left behind reach no later call") {
  in_each_kind(2, [](session& s) -> task<void> {
    for (int i = 0; i < 3; ++i) {
      const refusal told = co_await refusal_of(s.call(sends_too_much, 1, 3));
      CHECK(told.says("it received nothing"));
      co_await check_all_work(s);
    }
  });
}

/// What worker 0 has passed on behind a call that failed, of 10: on a busy machine it may
/// be slow, and has sent in the next world.
static task<void> check_failed_or_right(session& s, const dref<int>& cut) {
  const refusal told = co_await refusal_of(s.sync());
  if (told.cause == cause::none) {
    CHECK(co_await s.call(one_more, cut).from(1) == 11);
    co_return;
  }
  CHECK(told.function == "passed_on");
  CHECK((co_await refusal_of(s.call(one_more, cut))).says("passed_on"));
}

TEST_CASE(
    "S-d: what one worker has ended in the world of a failed call fails as well, or is "
    "right") {
  in_each_kind(2, [](session& s) -> task<void> {
    const mesh second = s.mesh({1});
    // Worker 0 has sent the value when worker 1 fails in the call before, and has told of
    // that or not.
    for (const int delay : {0, 2, 100}) {
      co_await second.issue(sleep_ms, delay);
      co_await s.issue(sends_too_much, 1, 3);
      const dref<int> cut = co_await s.issue(passed_on, 10);
      const dref<int> no_part = co_await s.issue(add_one, 20);
      CHECK((co_await refusal_of(s.sync())).function == "sends_too_much");
      CHECK(co_await s.call(passed_on, 99).from(1).within(10s) == 99);
      co_await check_failed_or_right(s, cut);
      // One without messages loses nothing with a world.
      CHECK(co_await s.call(one_more, no_part).all() == ints(22, 22));
    }
    co_await check_all_work(s);
  });
}

TEST_CASE(
    "S-d: also what one worker has ended long ago fails with the world of a call, or is "
    "right") {
  session_options limits;
  limits.window = 2;
  in_each_kind(
      2,
      [](session& s) -> task<void> {
        const mesh first = s.mesh({0});
        const mesh second = s.mesh({1});
        co_await second.issue(sleep_ms, 150);
        co_await s.issue(sends_too_much, 1, 3);
        const dref<int> cut = co_await s.issue(passed_on, 10);
        // More than a worker keeps in mind.
        for (int i = 0; i < 20; ++i)
          CHECK(co_await first.call(add_one, i).from(0) == i + 1);
        CHECK((co_await refusal_of(s.sync())).function == "sends_too_much");
        CHECK(co_await s.call(passed_on, 99).from(1).within(10s) == 99);
        co_await check_failed_or_right(s, cut);
        co_await check_all_work(s);
      },
      limits);
}

TEST_CASE(
    "S-d: a call that a cut finds at work, and that has sent, is not taken for done") {
  in_each_kind(2, [](session& s) -> task<void> {
    const mesh second = s.mesh({1});
    for (int i = 0; i < 2; ++i) {
      co_await second.issue(sleep_ms, 50);
      co_await s.issue(sends_too_much, 1, 3);
      const dref<int> cut = co_await s.issue(passed_on_slowly, 10, 200);
      CHECK((co_await refusal_of(s.sync())).function == "sends_too_much");
      CHECK(co_await s.call(passed_on, 99).from(1).within(10s) == 99);
      const refusal told = co_await refusal_of(s.sync());
      if (told.cause != cause::none) {
        CHECK(told.function == "passed_on_slowly");
      } else {
        CHECK(co_await s.call(one_more, cut).from(1) == 11);
      }
    }
    co_await check_all_work(s);
  });
}

TEST_CASE("calls behind one that fails wait until that is settled, over all meshes") {
  in_each_kind(3, [](session& s) -> task<void> {
    const mesh left = s.mesh({0, 1});
    const mesh right = s.mesh({1, 2});
    for (int i = 0; i < 20; ++i) {
      const dref<int> a = co_await left.issue(fails_on, i % 2);
      const dref<int> b = co_await right.issue(fails_on, 1000);
      const dref<int> c = co_await s.issue(fails_on, i % 3 == 0 ? 2 : 1000);
      CHECK(co_await s.call(add_one, i).from(2) == i + 1);
      CHECK(co_await right.call(one_more, b).from(1) == 3);
      int errors = 0;
      while ((co_await refusal_of(s.sync())).cause != cause::none) ++errors;
      CHECK(errors == (i % 3 == 0 ? 2 : 1));
    }
    co_await check_all_work(s);
  });
}

TEST_CASE(
    "S-b: what was filled again behind a call that fails is as the later call made it") {
  in_each_kind(2, [](session& s) -> task<void> {
    // So that all is issued before the first of them begins.
    co_await s.issue(sleep_ms, 50);
    const dref<int> x = co_await s.issue(fails_on, 1);
    const dref<int> behind = co_await s.issue(one_more, x);
    co_await s.issue(add_one, 5).into(x);
    CHECK(co_await s.call(one_more, x).all() == ints(7, 7));
    CHECK((co_await refusal_of(s.sync())).function == "fails_on");
    CHECK((co_await refusal_of(s.sync())).function == "one_more");
    CHECK((co_await refusal_of(s.sync())).cause == cause::none);
    CHECK(behind);
  });
}

TEST_CASE(
    "an issued call that is ended while it computes is answered when it has ended") {
  in_each_kind(2, [](session& s) -> task<void> {
    const refusal early = co_await refusal_of(s.issue(block_or_fail, 1, 50));
    const refusal late = co_await refusal_of(s.sync());
    CHECK((early.cause == cause::none ? late : early).function == "block_or_fail");
    co_await check_all_work(s);
  });
}

namespace {

/// Calls until the answer is as it should be, for a while.
template <class Call, class Is>
task<bool> becomes(Call call, Is is) {
  for (int tries = 0; tries < 2000; ++tries) {
    const refusal told = co_await refusal_of(call());
    if (is(told)) co_return true;
    co_await sleep_for(5ms);
  }
  co_return false;
}

bool is_stuck(const refusal& told) {
  return told.cause == cause::overdue && told.says("is stuck in call");
}
bool is_well(const refusal& told) { return told.cause == cause::none; }

}  // namespace

TEST_CASE(
    "the rest of a session goes on beside a stuck worker, which is named until it ends") {
  session_options limits;
  limits.grace = 50ms;
  in_each_kind(
      2,
      [](session& s) -> task<void> {
        (void)co_await refusal_of(s.issue(block_or_fail, 1, 1500));
        const mesh first = s.mesh({0});
        const mesh second = s.mesh({1});
        CHECK(co_await becomes([&] { return first.call(add_one, 1); }, is_stuck));
        CHECK(co_await second.call(add_one, 5).from(1) == 6);
        CHECK(co_await becomes([&] { return first.call(add_one, 1); }, is_well));
        CHECK(co_await becomes([&] { return s.sync(); }, is_well));
        co_await check_all_work(s);
      },
      limits);
}

TEST_CASE(
    "a worker that is busy with another call is not stuck in one that it never begins") {
  session_options limits;
  limits.grace = 30ms;
  limits.on_stuck = stuck_worker::kill;
  in_each_kind(
      2,
      [](session& s) -> task<void> {
        const mesh first = s.mesh({0});
        auto working = [&]() -> task<refusal> {
          co_return co_await refusal_of(first.call(block_ms, 300));
        };
        auto waiting = [&]() -> task<refusal> {
          co_return co_await refusal_of(s.call(add_one, 1).within(20ms));
        };
        const auto [worked, waited] = co_await when_all(working(), waiting());
        CHECK(worked.cause == cause::none);
        CHECK(waited.cause == cause::timed_out);
        co_await check_all_work(s);
      },
      limits);
}

TEST_CASE("an answer that is too large is an error of its call alone") {
  in_each_kind(2, [](session& s) -> task<void> {
    const refusal told = co_await refusal_of(s.call(many_texts, 17).from(0));
    CHECK(told.says("more than 16 MiB"));
    const std::vector<std::string> some = co_await s.call(many_texts, 1).from(1);
    CHECK(some.size() == 1024);
    co_await check_all_work(s);
  });
}

TEST_CASE("a session that is dropped while it closes ends all the same") {
  runtime rt;
  auto whole = [&]() -> task<void> {
    session s = co_await start_session(rt, worker_kind::threads, 2);
    co_await s.issue(sleep_ms, 60'000);
    auto closing = [&]() -> task<void> { co_await s.close(); };
    bool was_given_up = false;
    try {
      co_await within(closing(), 20ms);
    } catch (const timed_out&) {
      was_given_up = true;
    }
    CHECK(was_given_up);
    const mesh left = s.mesh({0});
    s = session();
    const refusal over = co_await refusal_of(left.call(add_one, 1));
    CHECK(over.cause == cause::closed);
  };
  rt.run([](task<void> all) -> task<void> {
    co_await within(std::move(all), 30s);
  }(whole()));
}

TEST_CASE("a sync that is given up ends at once, also behind a full window") {
  in_each_kind(2, [](session& s) -> task<void> {
    std::stop_source enough;
    auto sleeping = [&]() -> task<refusal> {
      co_return co_await refusal_of(s.call(sleep_ms, 60'000).stop(enough.get_token()));
    };
    auto issuing = [&]() -> task<void> {
      for (int i = 0; i < 100; ++i) (void)co_await s.issue(add_one, i);
    };
    auto giving_up = [&]() -> task<bool> {
      co_await sleep_for(20ms);
      auto syncing = [](const session& of) -> task<void> { co_await of.sync(); };
      bool was_given_up = false;
      try {
        co_await within(syncing(s), 20ms);
      } catch (const timed_out&) {
        was_given_up = true;
      }
      enough.request_stop();
      co_return was_given_up;
    };
    const auto [told, nothing, was_given_up] =
        co_await when_all(sleeping(), issuing(), giving_up());
    CHECK(told.cause == cause::cancelled);
    CHECK(was_given_up);
    co_await check_all_work(s);
  });
}

TEST_CASE("a session that is dropped ends its calls, and what waits for a worker") {
  runtime rt;
  auto whole = [&]() -> task<void> {
    session s = co_await start_session(rt, worker_kind::processes, 2);
    const mesh one = s.mesh({0});
    auto calling = [&]() -> task<refusal> {
      co_return co_await refusal_of(one.call(sleep_ms, 60'000));
    };
    auto replacing = [&]() -> task<std::string> {
      std::string said;
      try {
        for (;;) co_await s.respawn(1);
      } catch (const std::exception& e) {
        said = e.what();
      }
      co_return said;
    };
    auto dropping = [&]() -> task<void> {
      co_await sleep_for(30ms);
      s = session();
    };
    const auto [told, said, nothing] =
        co_await when_all(calling(), replacing(), dropping());
    CHECK(told.cause == cause::closed);
    CHECK(!said.empty());
    CHECK_THROWS_AS((void)s.describe(), std::invalid_argument);
  };
  rt.run([](task<void> all) -> task<void> {
    co_await within(std::move(all), 30s);
  }(whole()));
}

TEST_CASE("law 9: a call that is refused again and again keeps no other task waiting") {
  in_session(worker_kind::threads, 2, [](session& s) -> task<void> {
    auto trying = [&]() -> task<int> {
      for (;;) (void)co_await refusal_of(s.call(add_one, 1).from(7));
    };
    auto waiting = []() -> task<int> {
      co_await sleep_for(20ms);
      co_return 1;
    };
    const auto [never, once] = co_await when_any(trying(), waiting());
    CHECK(!never.has_value());
    CHECK(once == 1);
  });
}

TEST_CASE("a runtime that stops ends the calls of its sessions, and their workers") {
  for (const worker_kind kind : {worker_kind::threads, worker_kind::processes}) {
    CAPTURE(kind == worker_kind::threads);
    runtime rt;
    std::promise<void> is_there;
    auto calling =
        rt.start([](runtime& on, worker_kind of, std::promise<void>& told) -> task<void> {
          session s = co_await start_session(on, of, 2);
          told.set_value();
          co_await s.call(sleep_ms, 60'000);
        }(rt, kind, is_there));
    REQUIRE(is_there.get_future().wait_for(20s) == std::future_status::ready);
    rt.stop();
    CHECK(calling.wait_for(20s));
  }
}

TEST_CASE("a session that cannot be is refused at its start, with the reason") {
  runtime rt;
  runtime other;
  rt.run([](runtime& on, runtime& elsewhere) -> task<void> {
    const auto refused = [](task<session> starting) -> task<std::string> {
      try {
        (void)co_await std::move(starting);
      } catch (const std::exception& e) {
        co_return e.what();
      }
      co_return std::string();
    };
    const function_table& all = test_functions();
    session_options shut;
    shut.window = 0;
    CHECK(co_await refused(session::start(on, threads(0, all))) ==
          "session: it has no workers");
    CHECK(co_await refused(session::start(on, threads(5000, all))) ==
          "session: 5000 workers: it can have 4096");
    CHECK(co_await refused(session::start(on, threads(1, all, shut))) ==
          "session: a window of no commands lets none through");
    CHECK(co_await refused(session::start(on, processes{.workers = 1})) ==
          "session: its workers have no program");
    const std::string far = co_await refused(session::start(elsewhere, threads(1, all)));
    CHECK(far.find("on the reactor of its runtime") != std::string::npos);
  }(rt, other));
}

TEST_CASE(
    "disco A62: what is called after the end is refused, and a second end does nothing") {
  runtime rt;
  rt.run([](runtime& on) -> task<void> {
    session s = co_await start_session(on, worker_kind::threads, 2);
    const dref<int> x = co_await s.call(add_one, 1);
    co_await s.close();
    const refusal over = co_await refusal_of(s.call(add_one, 1));
    CHECK(over.cause == cause::closed);
    co_await s.close();
    const mesh left = s.mesh({0});
    s = session();
    const refusal dropped = co_await refusal_of(left.call(add_one, 1));
    CHECK(dropped.cause == cause::closed);
  }(rt));
}

}  // namespace manyworlds::spmd_tests
