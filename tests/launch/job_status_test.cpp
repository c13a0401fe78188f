// How a job stands, as probes and dumps are told (L42).
#include "launch/job_status.hpp"

#include <doctest/doctest.h>

#include <chrono>
#include <string>

#include "manyworlds/launch/launch_agent.hpp"
#include "manyworlds/world/runtime.hpp"

using namespace manyworlds;
using namespace manyworlds::detail;
using namespace std::chrono_literals;

namespace {

manyworlds::round round_of_three() {
  manyworlds::round r;
  r.run = "job";
  r.number = 2;
  node_description node("host", 3);
  node.id = "this";
  r.nodes.emplace_back(std::move(node));
  r.assign_ranks();
  return r;
}

}  // namespace

TEST_SUITE_BEGIN("launch: how a job stands");

TEST_CASE("L42: a job that waits for its nodes is well until its limit") {
  job_status status("job");
  CHECK(status.answer(time_point(1h)).is_well);
  status.note_waiting(time_point(10s));
  CHECK(status.answer(time_point(9s)).reason == "the job waits for its nodes");
  const health late = status.answer(time_point(10s));
  CHECK(!late.is_well);
  CHECK(late.reason == "the job's nodes have not come in time");
}

TEST_CASE("L42: a job is well while its workers run, and not while they are ended") {
  job_status status("job");
  const auto r = round_of_three();
  status.note_round(r, r.nodes.front());
  status.note_attempt(r.nodes.front());
  status.note_start(0, 100);
  status.note_start(1, 101);
  status.note_end(1, "exited", true);
  CHECK(status.answer({}).is_well);
  CHECK(status.answer({}).reason ==
        "round 2: of 3 workers 1 run, 1 start, 1 succeeded; 0 restarts");
  status.note_ending("rank 0 was killed");
  status.note_ending("the second cause");
  CHECK(!status.answer({}).is_well);
  CHECK(status.answer({}).reason == "rank 0 was killed");
  status.note_round(r, r.nodes.front());
  status.note_attempt(r.nodes.front());
  CHECK(status.answer({}).is_well);
}

TEST_CASE("a dump has workers, restarts and the last verdicts") {
  job_status status("job");
  const auto r = round_of_three();
  status.note_round(r, r.nodes.front());
  status.note_attempt(r.nodes.front());
  status.note_start(2, 100);
  status.note_end(2, "killed by signal 9", false);
  status.note_start(2, 105);
  status.note_restarts(1);
  for (int i = 0; i < 20; ++i) status.note_verdict(std::to_string(i));
  const job_report report = status.report();
  CHECK(report.workers.size() == 3);
  CHECK(report.workers[2].pid == 105);
  CHECK(report.workers[2].starts == 2);
  CHECK(report.workers[2].state == "runs");
  CHECK(report.restarts == 1);
  CHECK(report.verdicts.size() == 16);
  CHECK(report.verdicts.back() == "19");
}

TEST_CASE(
    "a runtime's dump tells of the jobs that it launches, as long as they are there") {
  runtime rt;
  {
    const launch_agent agent(rt, {.program = "/bin/true", .run_id = "seen"});
    CHECK(rt.dump().find("job seen: round 0") != std::string::npos);
  }
  CHECK(rt.dump().find("job seen") == std::string::npos);
}

TEST_SUITE_END();
