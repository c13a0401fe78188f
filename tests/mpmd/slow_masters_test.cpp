// What a master concludes when its records, its takeover or its agents take their time.
#include <doctest/doctest.h>

#include <chrono>
#include <string>

#include "mpmd/managed_job.hpp"

namespace {

using mw::detail::job_stage;

mw::job_graph controlled_job() {
  mw::job_graph g("controlled");
  g.role("trainer").run({"trainer"});
  g.role("actor").run({"actor"}).count(2).controller("trainer");
  return g;
}

/// Each failure starts the whole job again, and a node has room for one instance.
mw::job_graph job_on_two_nodes() {
  mw::job_graph g("spread");
  mw::graph_role& other = g.role("other").run({"other"}).count(2);
  other.need({.cpus = 3, .memory = 0, .gpus = 0, .labels = {}});
  other.restart(mw::restart_when::on_failure, {0, std::chrono::minutes(1)});
  return g;
}

const mw::instance_id first_actor{"actor", 0};

}  // namespace

TEST_CASE("graph B49: a controller has its time from when it is asked") {
  managed_job job(controlled_job(), {"a"});
  job.settle();
  REQUIRE(job.end_program(first_actor, 1));
  // The record that goes ahead of the question takes longer than an answer may.
  REQUIRE(job.end_program({"actor", 1}, 1));
  job.while_recording = [&] { job.let_pass(5'000); };
  job.turn();
  REQUIRE(job.asked().role == "actor");
  job.turn();
  job.manager().answered(first_actor, 1, true);
  job.manager().answered({"actor", 1}, 1, true);
  job.settle();
  CHECK(job.manager().context().job().restart_count == 0);
  CHECK(job.incarnation(first_actor) == 2);
}

TEST_CASE(
    "graph G-a: a master that takes over a restart waits for what lives of the last "
    "time") {
  managed_job job(job_on_two_nodes(), {"a", "b"});
  job.settle();
  REQUIRE(job.end_program({"other", 0}, 1));
  job.turn();
  REQUIRE(job.manager().context().job().restart_count == 1);
  // The other one lives, where the next master has yet to hear of an agent.
  job.kill_master();
  job.cut_off("a");
  job.cut_off("b");
  job.start_master();
  CHECK(job.manager().nodes().find("a") != nullptr);
  CHECK(job.manager().nodes().find("b") != nullptr);
  job.heal("a");
  job.turn();
  job.turn();
  CHECK_FALSE(job.manager().context().job().is_placed);
  job.heal("b");
  job.settle();
  CHECK(job.manager().context().job().is_placed);
  CHECK(job.incarnation({"other", 1}) == 2);
}

TEST_CASE("graph: each start of a job has its own time to find places") {
  managed_job job(job_on_two_nodes(), {"a", "b"});
  job.settle();
  // One lacks a place for most of its time, when the job is started again.
  job.kill_agent("b");
  job.turn();
  job.let_pass(29'000);
  job.turn();
  REQUIRE(job.manager().context().job().restart_count == 0);
  const mw::instance_id left = job.record({"other", 0}).place.node == "a"
                                   ? mw::instance_id{"other", 0}
                                   : mw::instance_id{"other", 1};
  REQUIRE(job.end_program(left, 1));
  job.turn();
  REQUIRE(job.manager().context().job().restart_count == 1);
  for (int n = 0; n < 10; ++n) {
    job.let_pass(2'000);
    job.turn();
  }
  CHECK(job.stage() < job_stage::stopping);
  job.start_agent("b");
  job.settle();
  CHECK(job.is_ready({"other", 0}));
  CHECK(job.is_ready({"other", 1}));
}
