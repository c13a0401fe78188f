// What is recorded of a job, and who takes it (L40).
#include "manyworlds/launch/job_events.hpp"

#include <doctest/doctest.h>

#include <limits>
#include <map>
#include <mutex>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "launch/job_records.hpp"
#include "process_fixture.hpp"

using namespace manyworlds;
using namespace std::chrono_literals;
using launch_tests::content_of;
using launch_tests::own_folder;

namespace {

/// What a sink of this test has taken.
struct taken {
  std::mutex mutex;
  std::vector<std::string> events;
  std::map<std::string, double> metrics;
  std::thread::id thread;
};

class noting_sink final : public job_sink {
 public:
  explicit noting_sink(taken& into) : into_(into) {}
  void take(const job_event& event) override {
    const std::lock_guard lock(into_.mutex);
    into_.events.push_back(event.name);
    into_.thread = std::this_thread::get_id();
    throw std::runtime_error("a sink that throws");
  }
  void take(const job_metric& metric) override {
    const std::lock_guard lock(into_.mutex);
    into_.metrics[metric.name] = metric.value;
  }

 private:
  taken& into_;
};

launch_result run_with_sinks(launch_options job) {
  runtime rt;
  launch_agent agent(rt, std::move(job));
  return rt.run(agent.run());
}

}  // namespace

TEST_SUITE_BEGIN("launch: events and metrics");

TEST_CASE("L40: an event is one line of JSON, whatever is in it") {
  job_event event{"a\n\"b", event_source::worker, {}, {}};
  event.time = std::chrono::system_clock::time_point(1700000000123ms);
  event.metadata = {{"none", {}},
                    {"flag", true},
                    {"whole", std::int64_t{-3}},
                    {"part", 0.5},
                    {"endless", std::numeric_limits<double>::infinity()},
                    {"text", std::string("\xff")}};
  CHECK(line_of(event) ==
        R"({"name":"a\u000a\"b","source":"WORKER","timestamp":1700000000123,)"
        R"("metadata":{"none":null,"flag":true,"whole":-3,"part":0.500000,)"
        R"("endless":null,"text":"\ufffd"}})");
}

TEST_CASE("L40: a metric is a line as torch's console has it") {
  job_metric metric{"workers.default.run_total", 1};
  metric.time = std::chrono::system_clock::time_point(1700000000250ms);
  CHECK(line_of(metric) ==
        "[1700000000.250000][torchelastic]: workers.default.run_total=1");
  metric.value = 0.25;
  metric.group = "mine";
  CHECK(line_of(metric) == "[1700000000.250000][mine]: workers.default.run_total=0.25");
}

TEST_CASE(
    "L40: a sink of the user's takes all of it on another thread, also if it throws") {
  taken all;
  std::string argument;
  register_job_sink("noting", [&](const job_sink_place& place) {
    argument = place.argument;
    return std::make_unique<noting_sink>(all);
  });
  launch_options job{.program = "/bin/true", .workers = 2};
  job.event_sink = job.metric_sink = "noting:a:b";
  CHECK(run_with_sinks(job).is_success);
  CHECK(argument == "a:b");
  CHECK(all.thread != std::this_thread::get_id());
  CHECK(all.events.size() == 7);
  CHECK(all.events.back() == "torchelastic.worker.status.SUCCEEDED");
  CHECK(all.metrics.at("workers.default.run_success_no_retries") == 1);
  CHECK(all.metrics.at("workers.default.flakiness") == 0);
  CHECK(all.metrics.at("workers.default.remaining_restarts") == 0);
}

TEST_CASE("L40: metrics tell of restarts") {
  taken all;
  register_job_sink("noting", [&](const job_sink_place&) {
    return std::make_unique<noting_sink>(all);
  });
  launch_options job{.program = "/bin/sh",
                     .arguments = {"-c", "[ $MANYWORLDS_ATTEMPT = 1 ]"}};
  job.max_restarts = 3;
  job.metric_sink = "noting";
  CHECK(run_with_sinks(job).is_success);
  CHECK(all.events.empty());
  CHECK(all.metrics.at("workers.default.run_success_with_retries") == 1);
  CHECK(all.metrics.at("workers.default.remaining_restarts") == 2);
  CHECK(all.metrics.at("workers.default.flakiness") == 25);
}

TEST_CASE("L40: the file's sink writes into the folder of the run") {
  const own_folder folder;
  launch_options job{.program = "/bin/true"};
  job.log_folder = folder.path();
  job.event_sink = "file";
  CHECK(run_with_sinks(job).is_success);
  const auto run = std::filesystem::directory_iterator(folder.path())->path();
  const std::string lines = content_of(run / "events.log");
  CHECK(lines.find("torchelastic.worker.status.START") != std::string::npos);
}

TEST_CASE("a sink that is far behind loses what comes then, and this is told") {
  runtime rt;
  std::mutex held;
  class slow final : public job_sink {
   public:
    explicit slow(std::mutex& m) : mutex_(m) {}
    void take(const job_event&) override { const std::lock_guard lock(mutex_); }
    void take(const job_metric&) override {}

   private:
    std::mutex& mutex_;
  };
  register_job_sink("slow",
                    [&](const job_sink_place&) { return std::make_unique<slow>(held); });
  launch_options job{.program = "p"};
  job.event_sink = "slow";
  std::vector<std::string> told;
  {
    detail::job_records records(job, "host", {});
    records.begin("", [&](const std::string& line) { told.push_back(line); });
    held.lock();
    for (int i = 0; i < 10100; ++i) records.emit({"x"});
    held.unlock();
    // It waits until all that was kept is taken.
    records.note_result({}, {});
  }
  REQUIRE(told.size() == 1);
  CHECK(told.front().find("events and metrics were lost") != std::string::npos);
}

TEST_CASE("a sink that is not known is refused, and one that cannot be made is told of") {
  launch_options job{.program = "/bin/true"};
  job.metric_sink = "unheard:x";
  runtime rt;
  CHECK_THROWS_WITH_AS(launch_agent(rt, job),
                       doctest::Contains("\"unheard:x\" for events or metrics"),
                       std::invalid_argument);
  std::vector<std::string> told;
  job.metric_sink = "file";
  job.told = [&](std::string_view line) { told.emplace_back(line); };
  CHECK(run_with_sinks(job).is_success);
  REQUIRE(!told.empty());
  CHECK(told.front().find("name the file, as file:PATH") != std::string::npos);
}

TEST_SUITE_END();
