// When a process is started again: the policy alone, and with programs.
#include <sys/resource.h>

#include "launch/restart_budget.hpp"
#include "process_fixture.hpp"

namespace manyworlds::launch_tests {

TEST_SUITE_BEGIN("launch");

namespace {

constexpr time_point noon{24h};

exit_reason exited(int code, duration ran_for = {}) {
  exit_reason r;
  r.code = code;
  r.ran_for = ran_for;
  return r;
}

double used_cpu(int who) {
  rusage used{};
  ::getrusage(who, &used);
  const auto seconds = [](const timeval& t) {
    return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_usec) / 1e6;
  };
  return seconds(used.ru_utime) + seconds(used.ru_stime);
}

}  // namespace

TEST_CASE("a policy says which ends are followed by a start") {
  restart_budget never({.when = restart_when::never});
  CHECK_FALSE(never.next(exited(1), noon));
  restart_budget failing({.when = restart_when::on_failure});
  CHECK_FALSE(failing.next(exited(0), noon));
  CHECK(failing.next(exited(1), noon));
  restart_budget always({.when = restart_when::always});
  CHECK(always.next(exited(0), noon));
  exit_reason stopped = exited(0);
  stopped.kind = exit_kind::stopped;
  CHECK_FALSE(always.next(stopped, noon));
}

TEST_CASE("the pause doubles up to its limit, and begins anew after a long life") {
  restart_budget budget({.when = restart_when::always, .most = 0});
  for (const duration wanted :
       {50ms, 100ms, 200ms, 400ms, 800ms, 1600ms, 3200ms, 5000ms, 5000ms})
    CHECK(budget.next(exited(1), noon) == wanted);
  CHECK(budget.next(exited(1, 6s), noon) == 50ms);
  CHECK(budget.next(exited(1, 4s), noon) == 100ms);
}

TEST_CASE("a budget holds within its window, and says when it is used up") {
  restart_budget budget({.when = restart_when::always, .most = 2, .window = 1min});
  CHECK(budget.next(exited(1), noon));
  CHECK(budget.next(exited(1), noon + 30s));
  CHECK_FALSE(budget.next(exited(1), noon + 59s));
  CHECK(budget.why_not() == "; it is not started again after 2 restarts within 60 s");
  CHECK(budget.next(exited(1), noon + 60s));
  CHECK(budget.why_not().empty());
  restart_budget for_life({.when = restart_when::always, .most = 1, .window = 0s});
  CHECK(for_life.next(exited(1), noon));
  CHECK_FALSE(for_life.next(exited(1), noon + 1000h));
  CHECK(for_life.why_not() == "; it is not started again after 1 restarts");
}

TEST_CASE("a policy with times that mean nothing is refused") {
  CHECK_THROWS_AS(restart_budget({.shortest = 0s}), std::invalid_argument);
  CHECK_THROWS_AS(restart_budget({.shortest = 2s, .longest = 1s}), std::invalid_argument);
  CHECK_THROWS_AS(restart_budget({.window = -1s}), std::invalid_argument);
}

TEST_CASE("a pause without an end is a long one") {
  restart_budget budget({.when = restart_when::always,
                         .most = 0,
                         .shortest = duration::max(),
                         .longest = duration::max()});
  for (int i = 0; i < 3; ++i) {
    const auto pause = budget.next(exited(1), noon);
    REQUIRE(pause);
    CHECK(*pause >= 24h);
    // Half of it is added at random.
    CHECK(*pause < duration::max() / 2);
  }
}

TEST_CASE("each end is told, with the pause before the next start") {
  node n;
  std::vector<process_end> ends;
  process_options how = orders({"exit", "1"});
  how.restart({.when = restart_when::on_failure, .most = 2, .shortest = 1ms});
  how.when_ended([&](const process_end& end) { ends.push_back(end); });
  const exit_reason last = run_to_end(n, std::move(how));
  CHECK(last.code == 1);
  REQUIRE(ends.size() == 3);
  CHECK(ends[0].start == 1);
  CHECK(ends[0].starts_again_in == 1ms);
  CHECK(ends[1].starts_again_in == 2ms);
  CHECK(ends[2].start == 3);
  CHECK_FALSE(ends[2].starts_again_in);
  CHECK(ends[2].reason == last);
  CHECK(n.log.has("exited with code 1"));
  CHECK(n.log.has("it is started again in 1 ms"));
  CHECK(n.log.has("it is not started again after 2 restarts within 600 s"));
}

TEST_CASE("V2 an end is the end, whatever the function throws that is told of it") {
  node n;
  process_options how = orders({"exit", "3"});
  how.when_ended([](const process_end&) { throw 42; });
  CHECK(run_to_end(n, std::move(how)).code == 3);
  CHECK(n.log.has("that is told of the ends of"));
}

TEST_CASE("a program of which the first start fails is not started again") {
  node n;
  process_options how("/nowhere/engine");
  how.restart({.when = restart_when::always});
  CHECK(run_to_end(n, std::move(how)).kind == exit_kind::not_started);
}

TEST_CASE("a stop ends the pause before the next start") {
  node n;
  event told;
  process_options how = orders({"exit", "1"});
  how.restart({.when = restart_when::always, .shortest = 1h, .longest = 1h});
  how.when_ended([&](const process_end&) { told.set(); });
  supervised_process one(n.rt, std::move(how));
  auto stopping = [&]() -> task<exit_reason> {
    co_await one.started();
    co_await within(told.wait(), 10s);
    co_await one.stop();
    co_return co_await one.ended();
  };
  CHECK(n.run(stopping()).code == 1);
  CHECK(one.starts() == 1);
}

TEST_CASE("V11 what always dies at once burns no core") {
  node n;
  supervised_process one(n.rt,
                         orders({"exit", "1"}).restart({.when = restart_when::always}));
  const double before = used_cpu(RUSAGE_SELF) + used_cpu(RUSAGE_CHILDREN);
  auto watching = [&]() -> task<void> {
    co_await one.started();
    co_await sleep_for(1s);
  };
  n.run(watching());
  const double used = used_cpu(RUSAGE_SELF) + used_cpu(RUSAGE_CHILDREN) - before;
  // At 0, 50 to 75, 150 to 225, 350 to 525 ms, and once more before the second.
  CHECK(one.starts() >= 3);
  CHECK(one.starts() <= 6);
  CHECK(used < 0.5);
}

TEST_SUITE_END();

}  // namespace manyworlds::launch_tests
