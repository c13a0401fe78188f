// What follows from what workers report, with members of a real world (L29, L62, L63).
#include "launch/worker_watch.hpp"

#include <doctest/doctest.h>
#include <signal.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "manyworlds/coro/when_any.hpp"
#include "manyworlds/launch/job_events.hpp"
#include "manyworlds/launch/launch_agent.hpp"
#include "process_fixture.hpp"

namespace manyworlds::launch_tests {

using namespace manyworlds::detail;

namespace {

launch_options three_that(const std::string& what) {
  launch_options job{.program = LAUNCH_MEMBER, .arguments = {what, "1"}};
  job.workers = 3;
  job.scope = restart_scope::worker;
  job.max_restarts = 5;
  job.streams = [](int, int) { return worker_streams{false, false, false, false}; };
  return job;
}

/// A job that is killed at its members, and what it tells.
struct told_job {
  explicit told_job(launch_options options) : job(std::move(options)) {
    job.told = [this](std::string_view line) { lines.emplace_back(line); };
  }

  [[nodiscard]] bool has(const std::string& part) const {
    for (const std::string& each : lines) {
      if (each.find(part) != std::string::npos) return true;
    }
    return false;
  }
  [[nodiscard]] task<void> until(std::function<bool()> holds) {
    while (!holds()) co_await sleep_for(5ms);
  }
  /// Kills the rank once its process has been there for a while, which a world of three
  /// needs to form.
  [[nodiscard]] task<void> kill(launch_agent& agent, int rank) {
    co_await until([&] { return agent.pid_of(rank) != 0; });
    co_await sleep_for(1s);
    ::kill(agent.pid_of(rank), SIGKILL);
  }
  /// Runs it until the text is told, or the limit has passed.
  [[nodiscard]] bool tells(const std::string& text, int killed) {
    node n;
    launch_agent agent(n.rt, job);
    auto look = [&]() -> task<void> {
      if (killed >= 0) co_await kill(agent, killed);
      co_await until([&] { return has(text); });
    };
    auto body = [&]() -> task<void> {
      co_await when_any(agent.run(), look(), sleep_for(20s));
    };
    n.run(body(), 40s);
    return has(text);
  }
  [[nodiscard]] std::string all() const {
    std::string text;
    for (const std::string& each : lines) text += each + "\n";
    return text;
  }

  std::vector<std::string> lines;
  launch_options job;
};

}  // namespace

TEST_SUITE_BEGIN("launch");

TEST_CASE("L62: after a replacement it is told when the worlds are up again") {
  told_job j(three_that("meets"));
  CHECK_MESSAGE(j.tells("world main up again after", 1), j.all());
  CHECK(j.has("incarnation 2"));
  CHECK(!j.has("reports nothing"));
}

TEST_CASE("L63: worlds that are not up again in time are a restart of all") {
  launch_options options = three_that("stays-away");
  options.worlds_up_limit = 2s;
  told_job j(options);
  CHECK_MESSAGE(j.tells("all 3 workers are started again", 1), j.all());
  CHECK(j.has("world main not up again within 2 s"));
}

TEST_CASE("L62: worlds are waited for also if the replacement dies before they are up") {
  launch_options options = three_that("dies-again");
  told_job j(options);
  CHECK_MESSAGE(j.tells("world main up again after", 1), j.all());
  CHECK_MESSAGE(j.has("incarnation 3, after"), j.all());
}

TEST_CASE("a worker that ended before it was in a world is waited for by none") {
  launch_options options{
      .program = "/bin/sh",
      .arguments = {"-c", "[ $MANYWORLDS_INCARNATION = 2 ] || exit 3"}};
  options.scope = restart_scope::worker;
  options.max_restarts = 1;
  options.worlds_up_limit = 1s;
  told_job j(options);
  node n;
  launch_agent agent(n.rt, j.job);
  const launch_result end = n.run(agent.run());
  CHECK(end.is_success);
  CHECK(end.restarts == 1);
}

namespace {

/// Keeps what is recorded of workers, as lines.
class worker_lines final : public job_sink {
 public:
  explicit worker_lines(std::vector<std::string>& into) : into_(into) {}
  void take(const job_event& event) override {
    if (event.source != event_source::worker || event.name.starts_with("torchelastic"))
      return;
    std::string line = event.name;
    for (const auto& [name, value] : event.metadata) {
      if (const auto* const text = std::get_if<std::string>(&value))
        line += ' ' + name + '=' + *text;
      if (const auto* const number = std::get_if<std::int64_t>(&value))
        line += ' ' + name + '=' + std::to_string(*number);
    }
    into_.push_back(line);
  }
  void take(const job_metric& metric) override {
    if (metric.group == "worker") into_.push_back(line_of(metric));
  }

 private:
  std::vector<std::string>& into_;
};

}  // namespace

TEST_CASE("what workers report goes to the sinks of the job") {
  launch_options options = three_that("reports");
  options.run_id = "job";
  options.event_sink = options.metric_sink = "worker_lines";
  std::vector<std::string> seen;
  register_job_sink("worker_lines", [&seen](const job_sink_place&) {
    return std::make_unique<worker_lines>(seen);
  });
  told_job j(options);
  {
    node n;
    launch_agent agent(n.rt, j.job);
    const launch_result end = n.run(agent.run());
    CHECK(end.is_success);
  }
  const auto count = [&](const char* what) {
    return std::count_if(seen.begin(), seen.end(), [&](const std::string& line) {
      return line.find(what) != std::string::npos;
    });
  };
  CHECK(count("begins run_id=job global_rank=1 how=well") == 1);
  CHECK(count("begins run_id=job global_rank=") == 3);
  CHECK(count("[worker]: tokens=2.5") == 3);
  CHECK(count("[worker]: all of it.duration.ms=") == 3);
}

TEST_CASE(
    "L63: a worker that asks for a restart of all gets it, as long as one is left") {
  launch_options options = three_that("asks");
  for (const std::size_t most : {1u, 0u}) {
    CAPTURE(most);
    options.max_restarts = most;
    told_job j(options);
    node n;
    launch_agent agent(n.rt, j.job);
    const launch_result end = n.run(agent.run());
    INFO(j.all());
    CHECK(end.is_success == (most == 1));
    CHECK(end.restarts == most);
    CHECK(j.has("it asks for a restart of all: its cache is gone"));
    if (most == 1) continue;
    REQUIRE(end.failures.size() == 1);
    CHECK(end.failures[0].rank == 1);
    CHECK(end.failures[0].traceback == "it asks for a restart of all: its cache is gone");
  }
}

TEST_CASE("a limit for hangs that no beat could keep is refused") {
  runtime rt;
  launch_options options{.program = "p"};
  options.hang_timeout = 999ms;
  CHECK_THROWS_AS(launch_agent(rt, options), std::invalid_argument);
  options.hang_timeout = 1s;
  CHECK_NOTHROW(launch_agent(rt, options));
  options.worlds_up_limit = 0s;
  CHECK_THROWS_AS(launch_agent(rt, options), std::invalid_argument);
}

TEST_CASE("a process that runs, is stopped, or has ended has the pulse of it") {
  node n;
  supervised_process sleeping(n.rt, process_options("/bin/sleep", {"300"}));
  auto start = [&]() -> task<void> { co_await sleeping.started(); };
  n.run(start());
  const pid_t pid = sleeping.pid();
  process_pulse pulse;
  const auto now = [] { return time_point(std::chrono::steady_clock::now()); };
  // A machine that is busy may read the program from its disk while we look.
  bool was_at_disk = false;
  const auto look = [&] {
    pulse.look(pid, now());
    was_at_disk |= pulse.state() == 'D';
  };
  REQUIRE(eventually([&] {
    look();
    return pulse.state() == 'S';
  }));
  ::kill(pid, SIGSTOP);
  REQUIRE(eventually([&] {
    look();
    return pulse.state() == 'T' && pulse.in_state(now()) > 50ms;
  }));
  pulse.forget(now());
  CHECK(pulse.in_state(now()) < 50ms);
  ::kill(pid, SIGCONT);
  CHECK(eventually([&] {
    look();
    return pulse.state() == 'S';
  }));
  CHECK(pulse.last_at_disk().has_value() == was_at_disk);
  pulse.look(0, now());
  CHECK(pulse.state() == '?');
}

TEST_SUITE_END();

}  // namespace manyworlds::launch_tests
