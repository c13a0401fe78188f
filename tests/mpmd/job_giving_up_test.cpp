// What a job's master gives up, and what is still held by what it gave up or lost.
#include <doctest/doctest.h>

#include <string>

#include "mpmd/managed_job.hpp"

namespace {

using mw::detail::job_stage;

mw::instance_id one(const char* role, std::uint32_t index) { return {role, index}; }

constexpr mw::retry_budget no_try{0, std::chrono::minutes(1)};
constexpr mw::retry_budget one_try{1, std::chrono::minutes(1)};
/// All CPUs of a node of these tests.
const mw::role_needs whole_node{.cpus = 4};

/// Lets an instance end with that code as soon as it lives, that many times.
void end_again(managed_job& job, const mw::instance_id& id, int code, int times) {
  for (int i = 0; i < 400 && times > 0; ++i) {
    job.turn();
    job.let_programs_go_on();
    if (job.is_ready(id) && job.end_program(id, code)) --times;
    job.let_pass(200);
  }
  REQUIRE(times == 0);
}

/// Lets time pass, in steps of a second.
void wait_for(managed_job& job, int seconds) {
  for (int i = 0; i < seconds; ++i) {
    job.turn();
    job.let_pass(1000);
  }
  job.turn();
}

}  // namespace

TEST_CASE("graph B44: one that is always started again does not end well by its budget") {
  mw::job_graph g("always");
  g.role("server").run({"server"}).restart(mw::restart_when::always, one_try);
  managed_job job(g, {"a"});
  job.start_master();
  end_again(job, one("server", 0), 0, 2);
  job.settle(10);
  CHECK(job.context().job().restart_count == 1);
  CHECK(job.starts(one("server", 0)) == 3);
}

TEST_CASE("graph B46: a driver that was given up is no end in order of the job") {
  mw::job_graph g("two");
  g.role("main")
      .run({"main"})
      .count(1, 2, 2)
      .driver()
      .restart(mw::restart_when::on_failure, no_try)
      .waits_until_ready(std::chrono::seconds(5));
  managed_job job(g, {"a"});
  job.never_ready.insert(one("main", 0));
  job.start_master();
  for (int i = 0; i < 10 && !job.is_ready(one("main", 1)); ++i) {
    job.turn();
    job.let_programs_go_on();
  }
  REQUIRE(job.end_program(one("main", 1), 0));
  for (int i = 0; i < 20; ++i) {
    job.turn();
    job.let_programs_go_on();
    job.let_pass(1000);
  }
  CHECK(job.stage() == job_stage::stopped);
  CHECK(job.context().job().exit_code == 1);
}

TEST_CASE("graph: one that is given up while the job starts does not hold it") {
  mw::job_graph g("start");
  g.role("first").run({"first"}).count(1, 2, 2).restart(mw::restart_when::on_failure,
                                                        one_try);
  g.role("second").run({"second"}).after("first");
  // The job does not run before this one is ready.
  g.role("slow").run({"slow"}).waits_until_ready();
  managed_job job(g, {"a"});
  job.never_ready.insert(one("slow", 0));
  job.never_ready.insert(one("second", 0));
  job.start_master();
  end_again(job, one("first", 1), 1, 2);
  job.settle(10);
  REQUIRE(job.stage() == job_stage::starting);
  CHECK(job.starts(one("second", 0)) == 1);
  job.never_ready.clear();
  job.settle(10);
  CHECK(job.stage() == job_stage::running);
  CHECK(job.context().job().restart_count == 0);
  CHECK(job.living() == 3);
}

TEST_CASE("graph: one that is given up keeps its devices until its process is gone") {
  mw::job_graph g("devices");
  g.role("pair")
      .run({"pair"})
      .count(1, 2, 2)
      .need(whole_node)
      .restart(mw::restart_when::on_failure, no_try);
  g.role("other").run({"other"}).need(whole_node);
  managed_job job(g, {"a", "b", "c"});
  job.settle();
  REQUIRE(job.stage() == job_stage::running);
  const std::string node = job.record(one("pair", 1)).place.node;
  const std::string lost = job.record(one("other", 0)).place.node;
  // A controller of its session has let it go, and it drains.
  job.manager().context().change(job.context().find(one("pair", 1)).value()).phase =
      mw::detail::instance_phase::ended;
  job.kill_agent(lost);
  job.turn();
  job.turn();
  CHECK(job.record(one("other", 0)).place.node.empty());
  job.let_programs_go_on();
  job.settle(10);
  CHECK(job.record(one("other", 0)).place.node == node);
  CHECK(job.is_ready(one("other", 0)));
}

TEST_CASE("graph: on a node that is back nothing starts beside what it still has") {
  mw::job_graph g("back");
  g.role("first").run({"first"}).need(whole_node);
  g.role("second").run({"second"}).need(whole_node);
  managed_job job(g, {"a", "b"});
  job.settle();
  const std::string of_first = job.record(one("first", 0)).place.node;
  const std::string of_second = job.record(one("second", 0)).place.node;
  REQUIRE(of_first != of_second);
  // The second is lost with its node, which is only cut off; the first with its agent.
  job.cut_off(of_second);
  wait_for(job, 31);
  REQUIRE(job.record(one("second", 0)).place.node.empty());
  job.kill_agent(of_first);
  job.turn();
  job.heal(of_second);
  job.turn();
  job.turn();
  CHECK(job.record(one("first", 0)).place.node == of_second);
  CHECK(job.starts(one("first", 0)) == 1);
  job.let_programs_go_on();
  job.turn();
  job.turn();
  CHECK(job.starts(one("first", 0)) == 2);
}

TEST_CASE("graph: each that lacks a place has its own time before the job is restarted") {
  mw::job_graph g("lacking");
  g.role("first").run({"first"}).need(whole_node);
  g.role("second").run({"second"}).need(whole_node);
  managed_job job(g, {"a", "b"});
  job.settle();
  const std::string of_first = job.record(one("first", 0)).place.node;
  const std::string of_second = job.record(one("second", 0)).place.node;
  job.kill_agent(of_first);
  wait_for(job, 28);
  job.kill_agent(of_second);
  job.turn();
  job.start_agent(of_first);
  wait_for(job, 10);
  CHECK(job.context().job().restart_count == 0);
  CHECK(job.record(one("first", 0)).place.node == of_first);
  CHECK(job.record(one("second", 0)).place.node.empty());
  wait_for(job, 25);
  CHECK(job.context().job().restart_count == 1);
}

TEST_CASE("graph G-c: while the store is away no silent node is given up") {
  mw::job_graph g("away");
  g.role("first").run({"first"});
  managed_job job(g, {"a"});
  job.settle();
  job.cut_off("a");
  for (int i = 0; i < 60; ++i) {
    job.manager().store_is_away(job.now());
    wait_for(job, 1);
  }
  CHECK(job.record(one("first", 0)).place.node == "a");
  // Its agent has its time from when it can find the master again.
  wait_for(job, 25);
  CHECK(job.record(one("first", 0)).place.node == "a");
  wait_for(job, 10);
  CHECK(job.record(one("first", 0)).place.node.empty());
}

TEST_CASE("graph B41, G-d: a job that has lost a node goes on with enough of each role") {
  mw::job_graph g("enough");
  g.role("server").run({"server"}).count(1, 2, 2).need(whole_node);
  managed_job job(g, {"a", "b"});
  job.settle();
  job.kill_agent("b");
  wait_for(job, 300);
  CHECK(job.stage() == job_stage::running);
  CHECK(job.context().job().restart_count == 0);
  CHECK(job.living() == 1);
  // It is said what the other one waits for, and it comes again with the node.
  CHECK(job.manager().waits_for().find("cpus") != std::string::npos);
  job.start_agent("b");
  job.settle();
  CHECK(job.living() == 2);
}

TEST_CASE("graph: what restarts together does so too where it has done its part") {
  mw::job_graph g("together");
  g.role("worker").run({"worker"}).count(2);
  g.edge("ring", "worker", "worker").bulk(mw::group).restart_together();
  managed_job job(g, {"a"});
  job.settle();
  REQUIRE(job.end_program(one("worker", 0), 0));
  job.settle(5);
  REQUIRE(job.living() == 1);
  REQUIRE(job.end_program(one("worker", 1), 1));
  job.settle();
  CHECK(job.is_ready(one("worker", 0)));
  CHECK(job.is_ready(one("worker", 1)));
  CHECK(job.incarnation(one("worker", 0)) == 2);
}

TEST_CASE("graph: with one that is given up go those that restart with it, and no more") {
  mw::job_graph g("pairs");
  g.role("left").run({"left"}).count(1, 2, 2).restart(mw::restart_when::on_failure,
                                                      no_try);
  g.role("right").run({"right"}).count(1, 2, 2);
  g.edge("kv", "left", "right").bulk(mw::aligned).restart_together();
  managed_job job(g, {"a"});
  job.settle();
  REQUIRE(job.end_program(one("left", 1), 1));
  job.settle();
  CHECK(job.stage() == job_stage::running);
  CHECK(job.context().job().restart_count == 0);
  CHECK(job.living() == 2);
  CHECK(job.is_ready(one("left", 0)));
  CHECK(job.is_ready(one("right", 0)));
  CHECK(job.record(one("right", 1)).why == "left.1 was given up");
}

TEST_CASE("graph: what has done its part and is to do it again is placed anew") {
  mw::job_graph g("again");
  g.role("worker").run({"worker"}).count(2).need(whole_node);
  g.edge("ring", "worker", "worker").bulk(mw::group).restart_together();
  g.role("other").run({"other"}).need(whole_node);
  managed_job job(g, {"a", "b", "c"});
  job.settle();
  const std::string of_first = job.record(one("worker", 0)).place.node;
  const std::string of_other = job.record(one("other", 0)).place.node;
  REQUIRE(job.end_program(one("worker", 0), 0));
  job.settle(5);
  // What it had is another's meanwhile.
  job.kill_agent(of_other);
  job.settle(5);
  REQUIRE(job.record(one("other", 0)).place.node == of_first);
  REQUIRE(job.end_program(one("worker", 1), 1));
  job.settle(10);
  CHECK(job.is_ready(one("other", 0)));
  CHECK(job.starts(one("worker", 0)) == 1);
  job.start_agent(of_other);
  job.settle();
  CHECK(job.is_ready(one("worker", 0)));
  CHECK(job.is_ready(one("worker", 1)));
}

TEST_CASE("graph: a region that lacks a place is missed by all roles of it") {
  mw::job_graph g("missed");
  g.role("left").run({"left"}).count(1, 2, 2).need(whole_node);
  g.role("right").run({"right"}).count(2);
  g.edge("kv", "left", "right").bulk(mw::aligned).restart_together();
  managed_job job(g, {"a", "b"});
  job.settle();
  job.kill_agent(job.record(one("left", 1)).place.node);
  wait_for(job, 20);
  CHECK(job.context().job().restart_count == 0);
  // The other one of its pair waits for it, and its role has too few without that.
  wait_for(job, 15);
  CHECK(job.context().job().restart_count == 1);
}

TEST_CASE("graph: what waits without haste has all of its time when haste begins") {
  mw::job_graph g("haste");
  g.role("server").run({"server"}).count(1, 2, 2).need(whole_node);
  managed_job job(g, {"a", "b"});
  job.settle();
  job.kill_agent("b");
  wait_for(job, 100);
  job.kill_agent("a");
  wait_for(job, 20);
  CHECK(job.context().job().restart_count == 0);
  wait_for(job, 15);
  CHECK(job.context().job().restart_count == 1);
}

TEST_CASE("graph B11: a role is ready when all of its start are, whatever its maximum") {
  mw::job_graph g("most");
  g.role("first").run({"first"}).count(1, 2, 8);
  g.role("second").run({"second"}).after("first");
  managed_job job(g, {"a"});
  job.never_ready.insert(one("first", 1));
  job.settle(10);
  CHECK(job.is_ready(one("first", 0)));
  CHECK(job.starts(one("second", 0)) == 0);
}

TEST_CASE("graph G-f: a store that is slow does not bring back a node that was lost") {
  mw::job_graph g("slow");
  g.role("server").run({"server"}).count(1, 2, 2).need(whole_node);
  managed_job job(g, {"a", "b"});
  job.settle();
  job.cut_off("b");
  // What ran there has ended meanwhile, which is not told.
  job.agents()["b"].has.clear();
  wait_for(job, 40);
  job.manager().stop("asked");
  for (int i = 0; i < 5; ++i) {
    job.manager().store_is_away(job.now());
    job.turn();
    job.let_programs_go_on();
    job.let_pass(1000);
  }
  CHECK(job.stage() == job_stage::stopped);
}

TEST_CASE("graph: the status says what an instance waits for, and what counts of it") {
  mw::job_graph g("told");
  g.role("first").run({"first"}).waits_until_ready();
  g.role("second").run({"second"}).after("first");
  managed_job job(g, {"a"});
  job.never_ready.insert(one("first", 0));
  job.settle(5);
  REQUIRE(job.end_program(one("first", 0), 1));
  job.turn();
  const std::size_t first = job.context().find(one("first", 0)).value();
  const std::size_t second = job.context().find(one("second", 0)).value();
  CHECK(job.manager().what_waits_for()[second] == "role \"first\" to be ready");
  CHECK(job.manager().what_waits_for()[first] == "its pause after a failure");
  CHECK(job.manager().counted_failures(first) == 1);
  wait_for(job, 61);
  CHECK(job.manager().counted_failures(first) == 0);
}

TEST_CASE("graph: a limit below a millisecond passes, too") {
  mw::job_graph g("short");
  g.role("server").run({"server"}).waits_until_ready(std::chrono::microseconds(1500));
  managed_job job(g, {"a"});
  job.never_ready.insert(one("server", 0));
  job.start_master();
  while (job.starts(one("server", 0)) == 0) job.turn();
  job.turn();
  const auto due = job.manager().next_due(job.now());
  REQUIRE(due.has_value());
  job.let_pass(*due - job.now());
  job.turn();
  CHECK(job.record(one("server", 0)).failures.size() == 1);
}
