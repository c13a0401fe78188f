// Programs of a simulation: in virtual time, without a process of this machine.
#include <signal.h>

#include "manyworlds/testing.hpp"
#include "process_fixture.hpp"

namespace manyworlds::launch_tests {

TEST_SUITE_BEGIN("launch");

namespace {

class simulated_site {
 public:
  explicit simulated_site(std::uint64_t seed = 1)
      : sim(seed), starter(sim, "starter", {.log = &log, .log_from = log_level::debug}) {}

  void program(const std::string& name, simulated_body body) {
    starter.process().add_program(name, std::move(body));
  }
  template <class T>
  T run(task<T> t, duration at_most = 1h) {
    auto running = starter->start(std::move(t));
    const bool has_ended = sim.run_until([&] { return running.is_ready(); }, at_most);
    REQUIRE_MESSAGE(has_ended, sim.describe());
    return running.get();
  }

  testing::kept_log log;
  simulation sim;
  simulated_runtime starter;
};

simulated_body exits_with(int code, duration after) {
  return [=](simulated_program&) -> task<int> {
    co_await sleep_for(after);
    co_return code;
  };
}

}  // namespace

TEST_CASE("a simulated program gets its arguments and variables, prints and exits") {
  simulated_site site;
  site.program("engine", [](simulated_program& self) -> task<int> {
    self.print(self.arguments().at(0) + ' ' + std::string(*self.variable("A")));
    self.print_error(self.variable("B") ? "set" : "not set");
    co_await sleep_for(2s);
    co_return 3;
  });
  std::vector<std::string> out;
  std::vector<std::string> err;
  process_options how("engine", {"--port"});
  how.set("A", "1").set("B", "2").unset("B");
  how.output(lines([&](const output_line& line) { out.emplace_back(line.text); }));
  how.errors(lines([&](const output_line& line) { err.emplace_back(line.text); }));
  auto life = [&]() -> task<exit_reason> {
    supervised_process one(*site.starter, how);
    co_await one.started();
    CHECK(one.pid() > 0);
    co_return co_await one.ended();
  };
  const exit_reason end = site.run(life());
  CHECK(end.kind == exit_kind::exited);
  CHECK(end.code == 3);
  CHECK(end.ran_for >= 2s);
  CHECK(end.ran_for < 2100ms);
  CHECK(out == std::vector<std::string>{"--port 1"});
  CHECK(err == std::vector<std::string>{"not set"});
}

TEST_CASE(
    "V1 V2 a simulated start fails, and a simulated program is killed, as asked for") {
  simulated_site site;
  site.program("engine", exits_with(0, 1h));
  site.starter.process().fail_start("engine", start_step::limits, EPERM);
  auto failing = [&]() -> task<exit_reason> {
    supervised_process one(*site.starter, process_options("engine"));
    co_return co_await one.ended();
  };
  exit_reason end = site.run(failing());
  CHECK(end.step == start_step::limits);
  CHECK(end.error == EPERM);
  auto missing = [&]() -> task<exit_reason> {
    supervised_process one(*site.starter, process_options("other"));
    co_return co_await one.ended();
  };
  CHECK(site.run(missing()).text() ==
        "cannot execute \"other\": no such file or directory");
  const auto killed = [&](bool for_memory) -> task<exit_reason> {
    supervised_process one(*site.starter, process_options("engine"));
    co_await one.started();
    CHECK(site.starter.process().programs() == std::vector<pid_t>{one.pid()});
    if (for_memory) {
      site.starter.process().kill_for_memory(one.pid());
    } else {
      site.starter.process().signal_program(one.pid(), SIGSEGV);
    }
    co_return co_await one.ended();
  };
  end = site.run(killed(false));
  CHECK(end.kind == exit_kind::signaled);
  CHECK(end.signal == SIGSEGV);
  CHECK(site.run(killed(true)).kind == exit_kind::out_of_memory);
  CHECK(site.starter.process().programs().empty());
}

TEST_CASE(
    "a simulated program heeds SIGTERM, or ends by it, or by SIGKILL after the grace") {
  simulated_site site;
  site.program("gentle", [](simulated_program& self) -> task<int> {
    co_await self.terminated();
    co_await sleep_for(1s);
    co_return 7;
  });
  site.program("deaf", [](simulated_program& self) -> task<int> {
    co_await self.terminated();
    co_await sleep_for(1000h);
    co_return 0;
  });
  site.program("plain", exits_with(0, 1000h));
  const auto stopped = [&](const char* name) -> task<exit_reason> {
    supervised_process one(*site.starter, process_options(name));
    co_await one.started();
    co_await sleep_for(1s);
    co_await one.stop(grace(10s));
    co_return co_await one.ended();
  };
  const exit_reason gentle = site.run(stopped("gentle"));
  CHECK(gentle.stop == stop_step::asked);
  CHECK(gentle.code == 7);
  const exit_reason plain = site.run(stopped("plain"));
  CHECK(plain.stop == stop_step::asked);
  CHECK(plain.signal == SIGTERM);
  const exit_reason deaf = site.run(stopped("deaf"));
  CHECK(deaf.stop == stop_step::killed);
  CHECK(deaf.ran_for >= 11s);
  CHECK(deaf.ran_for < 12s);
}

TEST_CASE("a simulated program that is stopped makes no progress until it goes on") {
  simulated_site site;
  site.program("engine", exits_with(0, 5s));
  auto paused = [&]() -> task<exit_reason> {
    supervised_process one(*site.starter, process_options("engine"));
    co_await one.started();
    one.signal(SIGSTOP);
    co_await sleep_for(20s);
    CHECK(one.pid() > 0);
    one.signal(SIGCONT);
    co_return co_await one.ended();
  };
  const exit_reason end = site.run(paused());
  CHECK(end.is_success());
  CHECK(end.ran_for >= 20s);
}

TEST_CASE("V11 restarts in virtual time: back-off up to 5 s, and a budget") {
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    CAPTURE(seed);
    simulated_site site(seed);
    site.program("engine", exits_with(1, 0s));
    std::vector<process_end> ends;
    process_options how("engine");
    how.restart({.when = restart_when::on_failure, .most = 12, .window = 0s});
    how.when_ended([&](const process_end& end) { ends.push_back(end); });
    auto life = [&]() -> task<exit_reason> {
      supervised_process one(*site.starter, how);
      co_return co_await one.ended();
    };
    const time_point before = site.sim.now();
    CHECK(site.run(life()).code == 1);
    REQUIRE(ends.size() == 13);
    CHECK(ends[0].starts_again_in == 50ms);
    CHECK(ends[11].starts_again_in == 5s);
    // 50 ms to 3.2 s, five times 5 s; and up to half of it more.
    CHECK(site.sim.now() - before >= 31'350ms);
    CHECK(site.sim.now() - before <= 48s);
  }
}

TEST_CASE(
    "V7 a simulated program ends with the task that watches it, and with its starter") {
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    CAPTURE(seed);
    simulated_site site(seed);
    site.program("engine", exits_with(0, 1000h));
    auto cancelled = [&](duration after) -> task<void> {
      auto life = [&]() -> task<void> {
        supervised_process one(*site.starter, process_options("engine"));
        co_await one.ended();
      };
      try {
        co_await within(life(), after);
      } catch (const timed_out&) {}
    };
    for (const duration after : {0us, 100us, 500us, 900us, 5000us})
      site.run(cancelled(after));
    const auto none_runs = [&] { return site.starter.process().programs().empty(); };
    CHECK(site.sim.run_until(none_runs, 1s));
    auto watched = [&]() -> task<void> {
      supervised_process one(*site.starter, process_options("engine"));
      co_await one.ended();
    };
    (void)site.starter->start(watched());
    CHECK(site.sim.run_until([&] { return !none_runs(); }, 1s));
    site.sim.kill(site.starter.process());
    CHECK(site.sim.run_until(none_runs, 1s));
  }
}

TEST_CASE("a simulated program has a runtime of its own, and talks to its starter") {
  simulated_site site;
  memory_store store;
  site.program("worker", [&](simulated_program& self) -> task<int> {
    runtime rt({.environment = &self.process()});
    auto answer = [&]() -> task<void> {
      world w(rt, store, {.name = "pair", .rank = 1, .size = 2});
      co_await w;
      int word = 42;
      co_await w.send(object(word), to{0});
      co_await w.leave();
    };
    auto answered = rt.start(answer());
    while (!answered.is_ready()) co_await sleep_for(1ms);
    co_return 0;
  });
  auto life = [&]() -> task<int> {
    supervised_process one(*site.starter, process_options("worker"));
    co_await one.started();
    world w(*site.starter, store, {.name = "pair", .rank = 0, .size = 2});
    co_await w;
    int word = 0;
    co_await w.recv(object(word), from{1});
    co_await w.leave();
    CHECK((co_await one.ended()).is_success());
    co_return word;
  };
  CHECK(site.run(life()) == 42);
}

TEST_SUITE_END();

}  // namespace manyworlds::launch_tests
