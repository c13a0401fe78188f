// Roles that are sessions: what their master concludes from the ends of controllers and
// workers.
#include <doctest/doctest.h>

#include <string>

#include "mpmd/managed_job.hpp"

namespace {

using mw::detail::instance_phase;
using mw::detail::job_stage;

mw::job_graph training_job() {
  mw::job_graph g("training");
  g.role("trainer").run({"trainer"}).count(4).driver().session();
  g.role("other").run({"other"}).count(2);
  return g;
}

mw::instance_id trainer(std::uint32_t index) { return {"trainer", index}; }

mw::detail::session_loss loss_of(std::uint32_t worker, std::uint64_t incarnation) {
  return {trainer(0), 1, trainer(worker), incarnation, "its session has lost it"};
}

}  // namespace

TEST_CASE("graph: a session's losses are its own: a worker alone is started again") {
  managed_job job(training_job(), {"a"});
  job.settle();
  REQUIRE(job.end_program(trainer(2), 1));
  job.settle();
  CHECK(job.incarnation(trainer(2)) == 2);
  for (const std::uint32_t other : {0U, 1U, 3U})
    CHECK(job.incarnation(trainer(other)) == 1);
  CHECK(job.incarnation({"other", 0}) == 1);
}

TEST_CASE("graph: a controller that dies leaves its workers alone") {
  managed_job job(training_job(), {"a"});
  job.settle();
  REQUIRE(job.end_program(trainer(0), 1));
  job.settle();
  CHECK(job.incarnation(trainer(0)) == 2);
  for (const std::uint32_t worker : {1U, 2U, 3U})
    CHECK(job.incarnation(trainer(worker)) == 1);
}

TEST_CASE(
    "graph: a worker that its session has lost is ended, charged once, and replaced") {
  managed_job job(training_job(), {"a"});
  job.settle();
  for (int telling = 0; telling < 3; ++telling) {
    job.manager().lost_to_session(loss_of(1, 1));
    job.turn();
  }
  job.settle();
  CHECK(job.incarnation(trainer(1)) == 2);
  CHECK(job.is_ready(trainer(1)));
  CHECK(job.record(trainer(1)).failures.size() == 1);
  CHECK(job.living() == 6);
}

TEST_CASE("graph: only its own controller, as it is now, says that a worker is lost") {
  managed_job job(training_job(), {"a"});
  job.settle();
  REQUIRE(job.end_program(trainer(0), 1));
  job.settle();
  REQUIRE(job.incarnation(trainer(0)) == 2);
  // An earlier controller, another worker, another role, the controller of itself.
  job.manager().lost_to_session(loss_of(1, 1));
  job.manager().lost_to_session({trainer(2), 1, trainer(1), 1, "a worker says so"});
  job.manager().lost_to_session({trainer(0), 2, {"other", 1}, 1, "not of its role"});
  job.manager().lost_to_session({{"other", 0}, 1, {"other", 1}, 1, "no session"});
  job.manager().lost_to_session({trainer(0), 2, trainer(0), 2, "itself"});
  // An incarnation that is none.
  job.manager().lost_to_session({trainer(0), 2, trainer(3), 7, "not there yet"});
  job.settle();
  for (const std::uint32_t worker : {1U, 2U, 3U})
    CHECK(job.incarnation(trainer(worker)) == 1);
  CHECK(job.incarnation({"other", 1}) == 1);
  CHECK(job.incarnation(trainer(0)) == 2);
}

TEST_CASE(
    "graph G-f: a session that ends in order ends its workers, and the job with it") {
  managed_job job(training_job(), {"a"});
  job.settle();
  // What has become of earlier incarnations of workers does not count.
  REQUIRE(job.end_program(trainer(1), 9));
  job.settle();
  REQUIRE(job.end_program(trainer(0), 0));
  // A master that dies between the records of the controller and its workers.
  job.turn(1);
  job.settle();
  CHECK(job.stage() == job_stage::stopped);
  CHECK(job.manager().context().job().exit_code == 0);
  CHECK(job.living() == 0);
  CHECK(job.starts(trainer(1)) == 2);
  CHECK(job.starts(trainer(2)) == 1);
}

TEST_CASE(
    "graph: the workers of a session that is closed come again with its controller") {
  mw::job_graph g = training_job();
  g.role("after").run({"after"}).after("trainer");
  managed_job job(g, {"a"});
  job.settle();
  for (const std::uint32_t worker : {1U, 2U, 3U})
    REQUIRE(job.end_program(trainer(worker), 0));
  job.settle();
  CHECK(job.stage() == job_stage::running);
  REQUIRE(job.end_program(trainer(0), 1));
  job.settle();
  for (const std::uint32_t each : {0U, 1U, 2U, 3U}) {
    CHECK(job.incarnation(trainer(each)) == 2);
    CHECK(job.is_ready(trainer(each)));
  }
  CHECK(job.record(trainer(1)).failures.empty());
}

TEST_CASE(
    "graph: what comes after a session comes again though its workers were stopped") {
  mw::job_graph g("training");
  g.role("trainer").run({"trainer"}).count(4).session();
  g.role("after").run({"after"}).after("trainer").driver();
  managed_job job(g, {"a"});
  job.settle();
  REQUIRE(job.end_program(trainer(0), 0));
  job.settle();
  REQUIRE(job.end_program({"after", 0}, 1));
  job.settle();
  CHECK(job.incarnation({"after", 0}) == 2);
  CHECK(job.is_ready({"after", 0}));
}

TEST_CASE(
    "graph B49: a loss that its agent tells of too is asked about, and charged once") {
  mw::job_graph g("training");
  g.role("boss").run({"boss"});
  g.role("trainer").run({"trainer"}).count(3).controller("boss").session();
  managed_job job(g, {"a"});
  job.settle();
  REQUIRE(job.end_program(trainer(2), 5));
  job.turn();
  REQUIRE(job.asked() == trainer(2));
  job.manager().lost_to_session(loss_of(2, 1));
  job.turn();
  // It is not decided before the controller has answered.
  CHECK(job.incarnation(trainer(2)) == 1);
  job.manager().answered(trainer(2), 1, true);
  job.settle();
  CHECK(job.incarnation(trainer(2)) == 2);
  CHECK(job.record(trainer(2)).failures.size() == 1);
}

TEST_CASE("graph B45: a controller that is given up restarts the job") {
  mw::job_graph g = training_job();
  g.role("trainer").count(1, 4, 4).restart(mw::restart_when::on_failure,
                                           {1, std::chrono::minutes(1)});
  managed_job job(g, {"a"});
  job.settle();
  for (int crash = 0; crash < 2; ++crash) {
    REQUIRE(job.end_program(trainer(0), 1));
    job.settle(10);
  }
  job.settle();
  CHECK(job.manager().context().job().restart_count == 1);
  // A worker that is given up is missed by its session alone.
  for (int crash = 0; crash < 2; ++crash) {
    REQUIRE(job.end_program(trainer(3), 1));
    job.settle(10);
  }
  job.settle();
  CHECK(job.manager().context().job().restart_count == 1);
  CHECK(job.record(trainer(3)).phase == instance_phase::ended);
}

TEST_CASE("graph: a session that tells its steps and stands still for a minute is hung") {
  managed_job job(training_job(), {"a"});
  job.settle(5);
  job.advance(trainer(0), 3);
  job.advance({"other", 0}, 3);
  job.turn();
  const auto due = job.manager().next_due(job.now());
  REQUIRE(due);
  CHECK(*due == job.now() + 60'000);
  // While a worker is away its controller waits, and does not stand still.
  job.let_pass(50'000);
  REQUIRE(job.end_program(trainer(2), 1));
  job.turn();
  job.let_pass(20'000);
  job.turn();
  CHECK(job.record(trainer(0)).failures.empty());
}

TEST_CASE(
    "graph G-e: a worker that leaves in order after its controller failed is back") {
  managed_job job(training_job(), {"a"});
  job.settle();
  // Its session was closed, and its process takes its time.
  REQUIRE(job.end_program(trainer(0), 1));
  job.turn();
  REQUIRE(job.end_program(trainer(2), 0));
  job.settle();
  CHECK(job.incarnation(trainer(0)) == 2);
  CHECK(job.incarnation(trainer(2)) == 2);
  CHECK(job.is_ready(trainer(2)));
  CHECK(job.record(trainer(2)).failures.empty());
}

TEST_CASE(
    "graph G-e: one that leaves while the next controller runs is back when that asks") {
  managed_job job(training_job(), {"a"});
  job.settle();
  REQUIRE(job.end_program(trainer(0), 1));
  job.settle();
  REQUIRE(job.incarnation(trainer(0)) == 2);
  REQUIRE(job.end_program(trainer(2), 0));
  job.settle();
  REQUIRE(job.incarnation(trainer(2)) == 1);
  job.manager().lost_to_session({trainer(0), 2, trainer(2), 1, "it does not answer"});
  job.settle();
  CHECK(job.incarnation(trainer(2)) == 2);
  CHECK(job.is_ready(trainer(2)));
  CHECK(job.record(trainer(2)).failures.size() == 1);
}

TEST_CASE("graph G-e: a worker that leaves again and again comes to its budget") {
  managed_job job(training_job(), {"a"});
  job.settle();
  for (int n = 0; n < 10 && job.context().job().restart_count == 0; ++n) {
    const std::uint64_t incarnation = job.incarnation(trainer(2));
    REQUIRE(job.end_program(trainer(2), 0));
    job.turn();
    job.manager().lost_to_session(
        {trainer(0), 1, trainer(2), incarnation, "its session has lost it"});
    job.settle(10);
  }
  CHECK(job.context().job().restart_count == 1);
}
