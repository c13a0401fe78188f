// The rules by which a job's master decides: laws G-a to G-f without processes.
#include <doctest/doctest.h>

#include <cerrno>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "mpmd/graph_status.hpp"
#include "mpmd/managed_job.hpp"

namespace {

using mw::detail::instance_phase;
using mw::detail::job_stage;

mw::job_graph serving_job() {
  mw::job_graph g("serving");
  g.role("router").run({"router"}).after("decode").after("prefill");
  g.role("prefill").run({"prefill"}).count(1, 2, 2);
  g.role("decode").run({"decode"}).count(1, 2, 2);
  g.edge("kv", "prefill", "decode").bulk(mw::pairs);
  return g;
}

mw::instance_id id(const char* role, std::uint32_t index) { return {role, index}; }

}  // namespace

TEST_CASE("graph B11: roles start in their order, and the job runs when all are ready") {
  managed_job job(serving_job(), {"a", "b"});
  job.start_master();
  // Places are recorded, then the first starts.
  job.turn();
  job.turn();
  CHECK(job.stage() == job_stage::starting);
  CHECK(job.starts(id("decode", 0)) == 1);
  // Not before those that it comes after are ready.
  CHECK(job.starts(id("router", 0)) == 0);
  job.let_programs_go_on();
  job.turn();
  CHECK(job.starts(id("router", 0)) == 1);
  job.settle();
  CHECK(job.stage() == job_stage::running);
  CHECK(job.living() == 5);
}

TEST_CASE("graph B9: a failure in the second stage leaves the first stage alone") {
  mw::job_graph g("stages");
  g.role("second").run({"second"}).count(2).after("first");
  g.role("first").run({"first"}).count(2);
  managed_job job(g, {"a"});
  job.start_master();
  job.turn();
  job.turn();
  REQUIRE(job.starts(id("first", 1)) == 1);
  CHECK(job.starts(id("second", 0)) == 0);
  job.settle();
  const auto pids = [&] {
    const auto& has = job.agents()["a"].has;
    return std::pair(has.at(id("first", 0)).pid, has.at(id("first", 1)).pid);
  };
  const auto before = pids();
  REQUIRE(job.end_program(id("second", 0), 1));
  job.settle();
  CHECK(job.starts(id("second", 0)) == 2);
  CHECK(pids() == before);
}

TEST_CASE("graph B35, G-d: a killed instance alone gets another incarnation") {
  managed_job job(serving_job(), {"a", "b"});
  job.settle();
  REQUIRE(job.end_program(id("decode", 1), 7));
  job.settle();
  CHECK(job.incarnation(id("decode", 1)) == 2);
  CHECK(job.is_ready(id("decode", 1)));
  for (const auto& other : {id("decode", 0), id("prefill", 0), id("prefill", 1)})
    CHECK(job.incarnation(other) == 1);
  CHECK(job.incarnation(id("router", 0)) == 1);
}

TEST_CASE("graph B36: the second and the third crash of an instance count as the first") {
  managed_job job(serving_job(), {"a"});
  job.settle();
  for (std::uint64_t crash = 1; crash <= 3; ++crash) {
    REQUIRE(job.end_program(id("decode", 0), 1));
    job.settle();
    CHECK(job.incarnation(id("decode", 0)) == crash + 1);
    CHECK(job.record(id("decode", 0)).failures.size() == crash);
    job.let_pass(1000);
  }
}

TEST_CASE("graph B37: two failures of different roles recover side by side") {
  managed_job job(serving_job(), {"a", "b"});
  job.settle();
  REQUIRE(job.end_program(id("decode", 0), 1));
  REQUIRE(job.end_program(id("prefill", 1), 1));
  job.settle();
  CHECK(job.incarnation(id("decode", 0)) == 2);
  CHECK(job.incarnation(id("prefill", 1)) == 2);
  CHECK(job.incarnation(id("prefill", 0)) == 1);
  CHECK(job.manager().context().job().restart_count == 0);
}

TEST_CASE("graph B39, G-e: what fails while its region recovers joins it, uncharged") {
  mw::job_graph g("group");
  g.role("actor").run({"actor"}).count(3);
  g.edge("ring", "actor", "actor").bulk(mw::group).restart_together();
  managed_job job(g, {"a"});
  job.settle();
  REQUIRE(job.end_program(id("actor", 0), 1));
  job.turn();
  // A victim: it was told to end, or dies of the loss before it hears of that.
  CHECK_FALSE(job.end_program(id("actor", 1), 1));
  job.settle();
  for (std::uint32_t n = 0; n < 3; ++n) CHECK(job.incarnation(id("actor", n)) == 2);
  CHECK(job.record(id("actor", 0)).failures.size() == 1);
  CHECK(job.record(id("actor", 1)).failures.empty());
}

TEST_CASE(
    "graph: an end that is heard while others are recorded is not acknowledged yet") {
  mw::job_graph g("group");
  g.role("actor").run({"actor"}).count(2);
  g.edge("ring", "actor", "actor").bulk(mw::group).restart_together();
  managed_job job(g, {"a"});
  job.settle();
  REQUIRE(job.end_program(id("actor", 0), 1));
  job.turn();
  // The other was told to end, and has.
  job.while_recording = [&] { job.let_programs_go_on(); };
  job.turn();
  CHECK(job.agents()["a"].has.contains(id("actor", 1)));
  job.kill_master();
  job.settle();
  REQUIRE(job.record(id("actor", 1)).exit);
  CHECK(job.record(id("actor", 1)).exit->kind == mw::exit_kind::stopped);
}

TEST_CASE("graph B38: a replacement that dies at its start is replaced too") {
  managed_job job(serving_job(), {"a"});
  job.settle();
  REQUIRE(job.end_program(id("decode", 0), 1));
  job.turn();
  job.let_pass(60);
  job.turn();
  REQUIRE(job.starts(id("decode", 0)) == 2);
  REQUIRE(job.end_program(id("decode", 0), 1));
  job.settle();
  CHECK(job.incarnation(id("decode", 0)) == 3);
  CHECK(job.is_ready(id("decode", 0)));
}

TEST_CASE(
    "graph B39, G-a: what is ordered as its region fails again is awaited, and ended") {
  mw::job_graph g("group");
  g.role("actor").run({"actor"}).count(2);
  g.edge("ring", "actor", "actor").bulk(mw::group).restart_together();
  g.place({"actor"}, mw::place_rule::spread);
  managed_job job(g, {"a", "b"});
  job.settle();
  REQUIRE(job.record(id("actor", 0)).place.node == "a");
  REQUIRE(job.end_program(id("actor", 1), 1));
  job.turn();
  job.let_programs_go_on();
  job.let_pass(200);
  // The second incarnations are ordered; that of node a is started, and nothing is heard
  // of it until the region has failed again.
  job.delay("a");
  job.turn();
  REQUIRE(job.starts(id("actor", 0)) == 2);
  REQUIRE(job.end_program(id("actor", 1), 1));
  for (int n = 0; n < 3; ++n) {
    job.turn();
    job.let_pass(200);
  }
  CHECK(job.incarnation(id("actor", 0)) == 2);
  CHECK(job.incarnation(id("actor", 1)) == 2);
  job.arrive("a");
  job.settle(6);
  CHECK(job.incarnation(id("actor", 0)) == 3);
  CHECK(job.incarnation(id("actor", 1)) == 3);
  CHECK(job.is_ready(id("actor", 0)));
  CHECK(job.is_ready(id("actor", 1)));
}

TEST_CASE("graph B48: pauses between tries grow, within the budget's window") {
  CHECK(mw::detail::pause_after(1) == 50);
  CHECK(mw::detail::pause_after(2) == 100);
  CHECK(mw::detail::pause_after(4) == 400);
  CHECK(mw::detail::pause_after(40) == 5000);
  mw::job_graph g("one");
  g.role("server")
      .run({"server"})
      .restart(mw::restart_when::on_failure, {2, std::chrono::seconds(30)});
  managed_job job(g, {"a"});
  job.settle();
  for (int crash = 0; crash < 6; ++crash) {
    REQUIRE(job.end_program(id("server", 0), 1));
    job.settle(10);
    // Those before the window are forgotten.
    job.let_pass(31'000);
  }
  CHECK(job.incarnation(id("server", 0)) == 7);
  CHECK(job.manager().context().job().restart_count == 0);
}

TEST_CASE("graph B48: a pause that ends while its begin is recorded is over at once") {
  managed_job job(serving_job(), {"a"});
  job.settle();
  REQUIRE(job.end_program(id("decode", 0), 1));
  job.turn();
  CHECK(job.manager().next_due(job.now()) == job.now() + 50);
  // The store was slow.
  job.let_pass(500);
  CHECK(job.manager().next_due(job.now()) == job.now());
}

TEST_CASE("graph B44, B45: a spent budget restarts the job, and at last ends it") {
  mw::job_graph g("one");
  g.role("server")
      .run({"server"})
      .restart(mw::restart_when::on_failure, {1, std::chrono::hours(1)});
  g.role("other").run({"other"});
  g.whole_job = {1, std::chrono::hours(1)};
  managed_job job(g, {"a"});
  job.settle();
  for (int crash = 0; crash < 2; ++crash) {
    REQUIRE(job.end_program(id("server", 0), 3));
    job.settle();
  }
  CHECK(job.manager().context().job().restart_count == 1);
  CHECK(job.stage() == job_stage::running);
  // What runs again is in no trouble.
  CHECK(job.context().job().why.empty());
  CHECK(job.incarnation(id("other", 0)) == 2);
  for (int crash = 0; crash < 2; ++crash) {
    job.end_program(id("server", 0), 3);
    job.settle();
  }
  CHECK(job.stage() == job_stage::stopped);
  CHECK(job.manager().context().job().exit_code != 0);
  CHECK(job.manager().context().job().why.find("server.0") != std::string::npos);
  CHECK(job.living() == 0);
}

TEST_CASE("graph: each restart of the job is an event with its cause") {
  mw::job_graph g("one");
  g.role("server")
      .run({"server"})
      .waits_until_ready()
      .restart(mw::restart_when::on_failure, {0, std::chrono::hours(1)});
  managed_job job(g, {"a"});
  job.never_ready.insert(id("server", 0));
  mw::detail::graph_status status;
  for (int crash = 0; crash < 2; ++crash) {
    job.settle(10);
    status.note_changes(job.manager(), job.now());
    REQUIRE(job.end_program(id("server", 0), 7 + crash));
    job.settle(1);
    status.note_changes(job.manager(), job.now());
  }
  // It has been starting all the time.
  CHECK(job.stage() == job_stage::starting);
  const std::string text = status.text(job.manager(), 1);
  CAPTURE(text);
  for (const char* const end : {"exited with code 7", "exited with code 8"})
    CHECK(text.find("the job is starting: server.0 on node a: " + std::string(end)) !=
          std::string::npos);
}

namespace {

std::size_t count_in(const std::string& text, const std::string& what) {
  std::size_t count = 0;
  for (auto at = text.find(what); at != text.npos; at = text.find(what, at + 1)) ++count;
  return count;
}

}  // namespace

TEST_CASE("graph B54: a new master tells on what has happened, and nothing of it twice") {
  managed_job job(serving_job(), {"a", "b"});
  job.settle();
  mw::detail::graph_status first;
  first.note(job.now(), "a master begins term 1");
  first.note_changes(job.manager(), job.now());
  const std::string told = first.text(job.manager(), 1);
  // What the first one did not come to tell is told by the next.
  REQUIRE(job.end_program(id("decode", 0), 9));
  job.settle();
  job.kill_master();
  job.settle();
  mw::detail::graph_status second;
  second.go_on_from(told, job.context());
  second.note_changes(job.manager(), job.now());
  const std::string text = second.text(job.manager(), 2);
  CAPTURE(text);
  CHECK(count_in(text, "a master begins term 1") == 1);
  CHECK(count_in(text, "the job is running") == 1);
  CHECK(count_in(text, "decode.0: incarnation 2 starts on") == 1);
  CHECK(count_in(text, "decode.1: incarnation 1 starts on") == 0);

  // What cannot be read is left out.
  std::string of_another_job = told;
  of_another_job.replace(of_another_job.find("\"number\":"), 10, "\"number\":1");
  for (const std::string& wrong :
       {std::string(), std::string("{}"), std::string("[1]"), of_another_job}) {
    mw::detail::graph_status third;
    third.go_on_from(wrong, job.context());
    third.note_changes(job.manager(), job.now());
    CHECK(count_in(third.text(job.manager(), 3), "\"what\"") == 1);
  }
}

TEST_CASE("graph B46: what is never started again ends the job with its own code") {
  mw::job_graph g("one");
  g.role("trainer").run({"trainer"}).restart(mw::restart_when::never);
  g.role("other").run({"other"});
  managed_job job(g, {"a"});
  job.settle();
  REQUIRE(job.end_program(id("trainer", 0), 3));
  job.settle();
  CHECK(job.stage() == job_stage::stopped);
  CHECK(job.manager().context().job().exit_code == 3);
  CHECK(job.living() == 0);
}

namespace {

mw::detail::instance_exit not_started(int error) {
  return {mw::exit_kind::not_started, error, 0, "cannot execute \"./none\""};
}

}  // namespace

TEST_CASE("graph B47, G-d: what cannot be started ends the job, and restarts nothing") {
  mw::job_graph g("one");
  g.role("other").run({"other"});
  g.role("server").run({"./none"}).count(1, 2, 2).after("other");
  managed_job job(g, {"a"});
  const mw::detail::instance_exit none = not_started(ENOENT);
  SUBCASE("as the job begins") {
    job.start_master();
    for (int n = 0; n < 20 && job.starts(id("server", 1)) == 0; ++n) {
      job.turn();
      job.let_programs_go_on();
    }
    REQUIRE(job.end_program(id("server", 1), none));
    job.settle(20);
    CHECK(job.stage() == job_stage::stopped);
    CHECK(job.context().job().exit_code != 0);
    const std::string why = job.context().job().why;
    CAPTURE(why);
    CHECK(why.find("server.1 on node a: cannot execute") != std::string::npos);
    CHECK(job.starts(id("server", 1)) == 1);
    CHECK(job.starts(id("other", 0)) == 1);
    CHECK(job.living() == 0);
  }
  SUBCASE("a job that runs goes on with those that are left of its role") {
    job.settle();
    REQUIRE(job.end_program(id("server", 1), none));
    job.settle(20);
    CHECK(job.stage() == job_stage::running);
    CHECK(job.starts(id("server", 1)) == 1);
    REQUIRE(job.end_program(id("server", 0), none));
    job.settle(20);
    CHECK(job.stage() == job_stage::stopped);
    CHECK(job.context().job().restart_count == 0);
  }
}

TEST_CASE("graph B47: a start that fails for want of memory is tried again") {
  managed_job job(serving_job(), {"a"});
  job.settle();
  for (const int error : {EAGAIN, ENOMEM, 0}) {
    const std::uint64_t before = job.incarnation(id("decode", 0));
    REQUIRE(job.end_program(id("decode", 0), not_started(error)));
    job.settle(20);
    CHECK(job.incarnation(id("decode", 0)) == before + 1);
  }
  CHECK(job.record(id("decode", 0)).failures.size() == 3);
  CHECK(job.is_ready(id("decode", 0)));
}

TEST_CASE("graph: the job goes on while a role has as many as it needs") {
  mw::job_graph g("one");
  g.role("server")
      .run({"server"})
      .count(1, 2, 2)
      .restart(mw::restart_when::on_failure, {0, std::chrono::hours(1)});
  managed_job job(g, {"a"});
  job.settle();
  REQUIRE(job.end_program(id("server", 0), 3));
  job.settle();
  CHECK(job.stage() == job_stage::running);
  CHECK(job.record(id("server", 0)).phase == instance_phase::ended);
  CHECK(job.is_ready(id("server", 1)));
}

TEST_CASE("graph B11: the job ends with its drivers, G-f: and nothing is left of it") {
  mw::job_graph g = serving_job();
  g.role("driver").run({"driver"}).count(2).driver();
  managed_job job(g, {"a", "b"});
  job.settle();
  REQUIRE(job.end_program(id("driver", 0), 0));
  job.settle();
  CHECK(job.stage() == job_stage::running);
  REQUIRE(job.end_program(id("driver", 1), 0));
  // It is over once all have ended, and not once all were told to: they take their time.
  for (int turn = 0; turn < 5; ++turn) job.turn();
  CHECK(job.stage() == job_stage::stopping);
  job.settle();
  CHECK(job.stage() == job_stage::stopped);
  CHECK(job.manager().context().job().exit_code == 0);
  CHECK(job.living() == 0);
}

TEST_CASE("graph B54: a new master restarts nothing") {
  managed_job job(serving_job(), {"a", "b"});
  job.settle();
  const auto before = job.agents();
  for (int i = 0; i < 10; ++i) {
    job.kill_master();
    job.settle(3);
  }
  CHECK(job.living() == 5);
  for (const auto& [name, agent] : job.agents())
    for (const auto& [which, has] : agent.has)
      CHECK(has.pid == before.at(name).has.at(which).pid);
}

TEST_CASE("graph B57: what ends and dies while there is no master is handled once") {
  mw::job_graph g = serving_job();
  g.role("job").run({"job"}).count(2).driver();
  managed_job job(g, {"a", "b"});
  job.settle();
  job.kill_master();
  REQUIRE(job.end_program(id("job", 0), 0));
  REQUIRE(job.end_program(id("decode", 0), 9));
  job.settle();
  CHECK(job.record(id("job", 0)).phase == instance_phase::ended);
  CHECK(job.starts(id("job", 0)) == 1);
  CHECK(job.incarnation(id("decode", 0)) == 2);
  CHECK(job.record(id("decode", 0)).failures.size() == 1);
}

TEST_CASE("graph B58: counts, places and budgets are equal before and after") {
  managed_job job(serving_job(), {"a", "b"});
  job.settle();
  REQUIRE(job.end_program(id("decode", 0), 9));
  job.settle();
  // One has recorded what it knows.
  const std::size_t decode = job.context().find(id("decode", 0)).value();
  REQUIRE(job.manager().context().record_fact(decode, "step", "17"));
  // The last of these is one too many for the only router: the whole job starts again.
  for (int crash = 0; crash < 4; ++crash) {
    REQUIRE(job.end_program(id("router", 0), 9));
    job.settle(20);
  }
  REQUIRE(job.end_program(id("prefill", 1), 9));
  job.settle();
  const mw::detail::job_record whole = job.context().job();
  REQUIRE(whole.restart_count == 1);
  std::vector<mw::detail::instance_record> before;
  for (std::size_t n = 0; n < job.context().size(); ++n)
    before.push_back(job.context().at(n));
  job.kill_master();
  job.settle(2);
  CHECK(job.context().job() == whole);
  for (std::size_t n = 0; n < before.size(); ++n) {
    CAPTURE(job.context().id(n).text());
    CHECK(job.context().at(n) == before[n]);
  }
  CHECK(job.context().facts(decode) ==
        std::map<std::string, std::string>{{"step", "17"}});
  CHECK(job.record(id("prefill", 1)).failures.size() == 1);
}

TEST_CASE("graph B41: a lost agent's instances go where they fit, uncharged") {
  managed_job job(serving_job(), {"a", "b"});
  job.settle();
  job.kill_agent("b");
  job.settle();
  CHECK(job.living() == 5);
  CHECK(job.agents()["a"].has.size() == 5);
  for (std::uint32_t n = 0; n < 2; ++n)
    CHECK(job.record(id("decode", n)).failures.empty());
  CHECK(job.manager().context().job().restart_count == 0);
}

TEST_CASE("graph G-a: another agent of the node's name gets new incarnations") {
  managed_job job(serving_job(), {"a"});
  job.settle();
  // It is replaced while no master looks.
  job.kill_master();
  job.kill_agent("a");
  job.start_agent("a");
  job.settle();
  CHECK(job.living() == 5);
  CHECK(job.incarnation(id("router", 0)) == 2);
}

TEST_CASE("graph: an instance that is not ready in time has failed") {
  mw::job_graph g("one");
  g.role("server").run({"server"}).waits_until_ready(std::chrono::seconds(5));
  managed_job job(g, {"a"});
  job.start_master();
  for (int i = 0; i < 40; ++i) {
    job.turn();
    job.let_programs_go_on(true);
    job.let_pass(200);
  }
  // Neither was ready, so that each was ended and another one follows.
  CHECK(job.incarnation(id("server", 0)) >= 2);
  CHECK(job.record(id("server", 0)).failures.size() >= 1);
}

TEST_CASE("graph B44, B45: what is never ready comes to the job's budget, and ends it") {
  mw::job_graph g("one");
  g.role("server").run({"server"}).waits_until_ready();
  g.role("other").run({"other"});
  managed_job job(g, {"a"});
  job.never_ready.insert(id("server", 0));
  job.start_master();
  // Each of four incarnations takes its ten minutes, of the whole job four times.
  const mw::detail::recorded_time limit = job.now() + 4 * 4 * 11 * 60'000;
  while (job.stage() != job_stage::stopped && job.now() < limit) {
    job.turn();
    job.let_programs_go_on();
    job.let_pass(5000);
  }
  REQUIRE(job.stage() == job_stage::stopped);
  CHECK(job.incarnation(id("server", 0)) == 16);
  CHECK(job.incarnation(id("other", 0)) == 4);
  CHECK(job.context().job().restart_count == 3);
  CHECK(job.context().job().exit_code != 0);
  const std::string why = job.context().job().why;
  CAPTURE(why);
  CHECK(why.find("server.0") != std::string::npos);
  CHECK(why.find("was not ready within") != std::string::npos);
  CHECK(job.living() == 0);
}

TEST_CASE("graph B44, B45: what stands still each time comes to the job's budget") {
  mw::job_graph g("one");
  g.role("stepper").run({"stepper"}).hang_after = std::chrono::minutes(5);
  managed_job job(g, {"a"});
  job.start_master();
  const mw::detail::recorded_time limit = job.now() + 4 * 4 * 6 * 60'000;
  while (job.stage() != job_stage::stopped && job.now() < limit) {
    job.turn();
    job.let_programs_go_on();
    job.advance(id("stepper", 0), 1);
    job.let_pass(2000);
  }
  REQUIRE(job.stage() == job_stage::stopped);
  CHECK(job.incarnation(id("stepper", 0)) == 16);
  CHECK(job.context().job().why.find("has stood still") != std::string::npos);
}

TEST_CASE("graph G-e: of failures of both kinds each counts for its own time") {
  mw::job_graph g("one");
  g.role("server").run({"server"}).waits_until_ready();
  managed_job job(g, {"a"});
  job.never_ready.insert(id("server", 0));
  job.settle(5);
  // By turns it is not ready in its ten minutes, and crashes after one.
  int crashes = 0;
  for (int n = 0; n < 10 && job.context().job().restart_count == 0; ++n) {
    const std::uint64_t before = job.incarnation(id("server", 0));
    for (int i = 0; i < 150 && job.incarnation(id("server", 0)) == before; ++i) {
      job.turn();
      job.let_programs_go_on();
      job.let_pass(5000);
    }
    for (int i = 0; i < 12; ++i) {
      job.turn();
      job.let_pass(5000);
    }
    if (job.end_program(id("server", 0), 1)) ++crashes;
    job.settle(5);
  }
  // The first two crashes are forgotten then, and none of the three limits is.
  CHECK(job.context().job().restart_count == 1);
  CHECK(crashes == 3);
}

TEST_CASE("graph G-e: of those that stand still the longest standing is charged") {
  mw::job_graph g("steps");
  g.role("a").run({"a"}).hang_after = std::chrono::seconds(10);
  g.role("b").run({"b"}).hang_after = std::chrono::seconds(10);
  g.role("silent").run({"silent"}).hang_after = std::chrono::seconds(10);
  managed_job job(g, {"a"});
  job.settle(5);
  job.advance(id("b", 0), 7);
  job.turn();
  job.let_pass(2000);
  job.advance(id("a", 0), 7);
  job.turn();
  const auto due = job.manager().next_due(job.now());
  REQUIRE(due);
  CHECK(*due == job.now() + 8000);
  for (int i = 0; i < 60; ++i) {
    job.turn();
    job.let_programs_go_on();
    job.let_pass(200);
  }
  CHECK(job.record(id("b", 0)).failures.size() == 1);
  CHECK(job.incarnation(id("b", 0)) == 2);
  CHECK(job.record(id("a", 0)).failures.empty());
  // It has never said how far it is.
  CHECK(job.incarnation(id("silent", 0)) == 1);
}

TEST_CASE("graph G-d: what waits for a node that is lost is placed anew") {
  mw::job_graph g("ring");
  g.role("actor").run({"actor"}).count(4).need(
      {.cpus = 1, .memory = 0, .gpus = 0, .labels = {}});
  g.edge("ring", "actor", "actor").bulk(mw::group).restart_together();
  g.place({"actor"}, mw::place_rule::spread);
  g.role("late").run({"late"}).after("actor");
  managed_job job(g, {"a", "b"});
  job.settle();
  // Several of one region are lost with their node, which does not come back.
  job.kill_agent("b");
  job.settle();
  CHECK(job.living() == 5);
  for (std::uint32_t n = 0; n < 4; ++n) CHECK(job.incarnation(id("actor", n)) == 2);
  CHECK(job.manager().context().job().restart_count == 0);
}

TEST_CASE("graph G-e: the first to end is charged, whatever its number") {
  mw::job_graph g("ring");
  g.role("actor").run({"actor"}).count(2);
  g.edge("ring", "actor", "actor").bulk(mw::group).restart_together();
  managed_job job(g, {"a"});
  job.settle();
  REQUIRE(job.end_program(id("actor", 1), 9));
  REQUIRE(job.end_program(id("actor", 0), 1));
  job.settle();
  CHECK(job.record(id("actor", 1)).failures.size() == 1);
  CHECK(job.record(id("actor", 0)).failures.empty());
}

TEST_CASE("graph: a job that is told to stop before anything was ordered is over") {
  managed_job job(serving_job(), {"a"});
  job.start_master();
  job.turn();
  // It records what it starts, and dies before it orders that.
  job.turn(6);
  REQUIRE_FALSE(job.has_master());
  job.start_master();
  job.manager().stop("enough");
  job.settle(10);
  CHECK(job.stage() == job_stage::stopped);
  CHECK(job.living() == 0);
}

TEST_CASE("graph G-f: what may start as the job ends is not waited for") {
  mw::job_graph g("brief");
  g.role("main").run({"main"}).driver().waits_until_ready().restart(
      mw::restart_when::never);
  g.role("late").run({"late"}).after("main");
  managed_job job(g, {"a"});
  job.start_master();
  for (int n = 0; n < 3; ++n) job.turn();
  REQUIRE(job.end_program(id("main", 0), 0));
  job.settle(10);
  CHECK(job.stage() == job_stage::stopped);
  CHECK(job.starts(id("late", 0)) == 0);
}

TEST_CASE("graph: a silent agent's instances live until it is cut off") {
  managed_job job(serving_job(), {"a", "b"});
  job.settle();
  job.cut_off("b");
  for (int i = 0; i < 20; ++i) {
    job.turn();
    job.let_pass(1000);
  }
  CHECK(job.living() == 5);
  CHECK(job.starts(id("decode", 0)) + job.starts(id("decode", 1)) == 2);
  // It is back in time: nothing was replaced.
  job.heal("b");
  job.settle();
  CHECK(job.living() == 5);
  CHECK(job.incarnation(id("decode", 0)) == 1);
  CHECK(job.incarnation(id("decode", 1)) == 1);
}

TEST_CASE("graph B49: a role's controller is asked before a failover, and may decline") {
  mw::job_graph g("trained");
  g.role("trainer").run({"trainer"});
  g.role("worker").run({"worker"}).count(2).controller("trainer");
  managed_job job(g, {"a"});
  job.settle();
  REQUIRE(job.end_program(id("worker", 1), 1));
  job.turn();
  REQUIRE(job.asked() == id("worker", 1));
  CHECK(job.incarnation(id("worker", 1)) == 1);
  job.manager().answered(id("worker", 1), 1, true);
  job.settle();
  CHECK(job.incarnation(id("worker", 1)) == 2);
  CHECK(job.manager().context().job().restart_count == 0);
  // Silence is a no, and then the whole job starts again.
  REQUIRE(job.end_program(id("worker", 0), 1));
  job.settle();
  CHECK(job.manager().context().job().restart_count == 1);
  // One that says that it cannot go on leads to the same, and does so at once (B44).
  REQUIRE(job.end_program(id("worker", 1), 1));
  job.turn();
  REQUIRE(job.asked() == id("worker", 1));
  const std::uint64_t declined = job.incarnation(id("worker", 1));
  job.manager().answered(id("worker", 1), declined, false);
  job.turn();
  CHECK(job.manager().context().job().restart_count == 2);
  CHECK(job.manager().context().job().why.find("trainer.0 cannot go on") !=
        std::string::npos);
  CHECK(job.record(id("worker", 1)).failures.empty());
  job.settle();
  CHECK(job.incarnation(id("worker", 1)) == declined + 1);
  CHECK(job.is_ready(id("worker", 1)));
  // A controller that is itself away is not asked.
  REQUIRE(job.end_program(id("trainer", 0), 1));
  REQUIRE(job.end_program(id("worker", 0), 1));
  job.settle();
  CHECK(job.manager().context().job().restart_count == 2);
  CHECK(job.is_ready(id("worker", 0)));
}

namespace {

mw::job_graph trained_job() {
  mw::job_graph g("trained");
  g.role("trainer").run({"trainer"});
  g.role("worker").run({"worker"}).controller("trainer");
  return g;
}

/// Turns until a controller is asked about it, and no further.
bool is_asked_about(managed_job& job, const mw::instance_id& which) {
  for (int n = 0; n < 1000 && !(job.asked() == which); ++n) {
    job.let_pass(100);
    job.turn();
  }
  return job.asked() == which;
}

}  // namespace

TEST_CASE("graph B49: a controller is asked about one that is not ready in time") {
  mw::job_graph g = trained_job();
  g.role("worker").waits_until_ready(std::chrono::seconds(5));
  managed_job job(g, {"a"});
  job.never_ready.insert(id("worker", 0));
  job.settle(5);
  REQUIRE(is_asked_about(job, id("worker", 0)));
  CHECK(job.incarnation(id("worker", 0)) == 1);
  SUBCASE("it copes, and the worker alone is replaced") {
    // What the controller has done by its answer stands, though the worker is ready now.
    job.never_ready.clear();
    job.let_programs_go_on();
    job.manager().answered(id("worker", 0), 1, true);
    job.settle(20);
    CHECK(job.incarnation(id("worker", 0)) == 2);
    CHECK(job.record(id("worker", 0)).failures.size() == 1);
    CHECK(job.incarnation(id("trainer", 0)) == 1);
  }
  SUBCASE("silence is a no") {
    job.settle(20);
    CHECK(job.context().job().restart_count == 1);
    CHECK(job.incarnation(id("trainer", 0)) == 2);
  }
}

TEST_CASE("graph B49: a controller is asked about one that stands still") {
  mw::job_graph g = trained_job();
  g.role("worker").hang_after = std::chrono::seconds(5);
  managed_job job(g, {"a"});
  job.settle(5);
  job.advance(id("worker", 0), 7);
  REQUIRE(is_asked_about(job, id("worker", 0)));
  CHECK(job.incarnation(id("worker", 0)) == 1);
  bool copes = true;
  SUBCASE("it copes") {}
  SUBCASE("it does not") { copes = false; }
  job.manager().answered(id("worker", 0), 1, copes);
  job.settle(20);
  CHECK(job.incarnation(id("worker", 0)) == 2);
  CHECK(job.incarnation(id("trainer", 0)) == (copes ? 1 : 2));
  CHECK(job.context().job().restart_count == (copes ? 0 : 1));
}

TEST_CASE("graph B49: a controller is asked about what is lost with its node") {
  mw::job_graph g = trained_job();
  g.place({"trainer", "worker"}, mw::place_rule::spread);
  managed_job job(g, {"a", "b"});
  job.settle(5);
  const std::string node = job.record(id("worker", 0)).place.node;
  REQUIRE(node != job.record(id("trainer", 0)).place.node);
  SUBCASE("it copes, or does not") {
    bool copes = true;
    SUBCASE("it copes") {}
    SUBCASE("it does not") { copes = false; }
    job.kill_agent(node);
    REQUIRE(is_asked_about(job, id("worker", 0)));
    CHECK(job.incarnation(id("worker", 0)) == 1);
    job.manager().answered(id("worker", 0), 1, copes);
    // After a restart of the job all nodes are awaited for a while.
    job.settle(200);
    CHECK(job.is_ready(id("worker", 0)));
    CHECK(job.record(id("worker", 0)).failures.empty());
    CHECK(job.incarnation(id("trainer", 0)) == (copes ? 1 : 2));
  }
  SUBCASE("a node that is back before the answer has lost nothing") {
    job.cut_off(node);
    job.let_pass(30'000);
    REQUIRE(is_asked_about(job, id("worker", 0)));
    job.heal(node);
    job.settle(10);
    CHECK(job.incarnation(id("worker", 0)) == 1);
    // Its next failure is another question.
    REQUIRE(job.end_program(id("worker", 0), 1));
    job.turn();
    job.manager().answered(id("worker", 0), 1, true);
    job.settle(10);
    CHECK(job.incarnation(id("worker", 0)) == 2);
    CHECK(job.context().job().restart_count == 0);
  }
}

TEST_CASE(
    "graph B49: an end is kept while a controller is asked, also if it is as the last") {
  mw::job_graph g("trained");
  g.role("trainer").run({"trainer"});
  g.role("worker").run({"worker"}).controller("trainer");
  managed_job job(g, {"a"});
  job.settle();
  REQUIRE(job.end_program(id("worker", 0), 1));
  job.turn();
  job.manager().answered(id("worker", 0), 1, true);
  job.settle();
  REQUIRE(job.incarnation(id("worker", 0)) == 2);
  REQUIRE(job.end_program(id("worker", 0), 1));
  job.turn();
  CHECK(job.agents()["a"].has.contains(id("worker", 0)));
  // The next master asks again.
  job.kill_master();
  job.start_master();
  job.turn();
  job.manager().answered(id("worker", 0), 2, true);
  job.settle();
  CHECK(job.incarnation(id("worker", 0)) == 3);
  CHECK(job.record(id("worker", 0)).failures.size() == 2);
}

TEST_CASE("graph B5: what fits nowhere is refused before anything starts") {
  mw::job_graph g("large");
  g.role("server")
      .run({"server"})
      .need({.cpus = 64, .memory = 0, .gpus = 0, .labels = {}});
  managed_job job(g, {"a"});
  job.settle();
  CHECK(job.stage() == job_stage::stopped);
  CHECK(job.manager().context().job().exit_code != 0);
  CHECK(job.manager().context().job().why.find("cpus") != std::string::npos);
  CHECK(job.starts(id("server", 0)) == 0);
}

// --- by seed --------------------------------------------------------------------------

namespace {

mw::job_graph mixed_job() {
  mw::job_graph g("mixed");
  g.role("router").run({"router"}).after("decode");
  g.role("prefill")
      .run({"prefill"})
      .count(1, 2, 2)
      .restart(mw::restart_when::on_failure, {1000, std::chrono::hours(10)});
  g.role("decode")
      .run({"decode"})
      .count(1, 3, 3)
      .restart(mw::restart_when::on_failure, {1000, std::chrono::hours(10)});
  g.role("actor").run({"actor"}).count(2).restart(mw::restart_when::on_failure,
                                                  {1000, std::chrono::hours(10)});
  g.role("router").restart(mw::restart_when::on_failure, {1000, std::chrono::hours(10)});
  g.edge("ring", "actor", "actor").bulk(mw::group).restart_together();
  return g;
}

void hurt(managed_job& job) {
  const std::vector<mw::instance_id> all{{"router", 0}, {"prefill", 0}, {"prefill", 1},
                                         {"decode", 0}, {"decode", 1},  {"decode", 2},
                                         {"actor", 0},  {"actor", 1}};
  switch (job.random().below(6)) {
    case 0:
    case 1:
      job.end_program(all[job.random().below(all.size())], 1);
      break;
    case 2:
      job.kill_master();
      break;
    case 3: {
      const char* const node = job.random().below(2) == 0 ? "a" : "b";
      job.kill_agent(node);
      // Half of them stay away: c is always there. Until all are there, a job does not
      // begin.
      if (!job.has_begun() || job.random().below(2) == 0) job.start_agent(node);
      break;
    }
    default:
      job.let_programs_go_on();
  }
}

}  // namespace

TEST_CASE(
    "graph B56, G-a to G-e: whatever dies after whichever record, the end is the same") {
  for (std::uint64_t seed = 0; seed < seeds_to_try(300); ++seed) {
    CAPTURE(seed);
    managed_job job(mixed_job(), {"a", "b", "c"}, seed);
    for (int step = 0; step < 80; ++step) {
      if (!job.has_master()) job.start_master();
      const bool dies = job.random().below(4) == 0;
      if (dies) {
        job.turn(job.random().below(12));
      } else {
        job.turn();
      }
      if (job.random().below(2) == 0) job.let_programs_go_on();
      job.let_pass(static_cast<std::int64_t>(job.random().below(400)));
      if (job.random().below(3) == 0) hurt(job);
    }
    // A node that was lost while no master was there is cut off after 30 s.
    job.settle(400);
    CAPTURE(job.manager().context().job().why);
    CHECK(job.stage() == job_stage::running);
    CHECK(job.living() == 8);
    for (const char* const role : {"prefill", "decode", "actor", "router"}) {
      for (std::uint32_t n = 0; n < 3; ++n) {
        const auto found = job.manager().context().find({role, n});
        if (!found) continue;
        CHECK(job.is_ready({role, n}));
        // Law G-e: none is charged for what it has not done.
        CHECK(job.record({role, n}).failures.size() <= job.kills({role, n}));
      }
    }
    // The members of a region do not outlive each other.
    CHECK(job.began_after_end_of({"actor", 0}, {"actor", 1}));
    CHECK(job.began_after_end_of({"actor", 1}, {"actor", 0}));
    // Nothing is due while nothing happens.
    const auto due = job.manager().next_due(job.now());
    CHECK((!due || *due > job.now() + 1));
    // Law G-f.
    job.manager().stop("enough");
    job.settle(20);
    CHECK(job.stage() == job_stage::stopped);
    CHECK(job.living() == 0);
  }
}

TEST_CASE("graph B55: a master that dies in any stage leaves a job that ends the same") {
  mw::job_graph g = serving_job();
  g.role("router").driver();
  g.role("decode").count(2, 2, 2);
  // Where the master dies: before it has begun, while all start, while an instance is
  // replaced, while all are started again, and while all end.
  for (const char* const moment : {"begins", "starts", "replaces", "restarts", "stops"}) {
    for (std::size_t steps = 0; steps < 12; ++steps) {
      const std::string_view at = moment;
      CAPTURE(at);
      CAPTURE(steps);
      managed_job job(g, {"a", "b"});
      job.start_master();
      if (at == "starts") job.turn();
      if (at == "replaces" || at == "restarts" || at == "stops") job.settle();
      if (at == "replaces") REQUIRE(job.end_program(id("decode", 0), 1));
      // The budget of an instance is spent by its fourth failure.
      for (int crash = 0; at == "restarts" && crash < 4; ++crash) {
        REQUIRE(job.end_program(id("decode", 0), 1));
        if (crash < 3) job.settle(20);
      }
      if (at == "stops") job.manager().stop("it is told to");
      job.turn(steps);
      job.kill_master();
      job.start_master();
      // The order to stop stays where each master looks for it.
      if (at == "stops") job.manager().stop("it is told to");
      job.settle(100);
      if (at == "stops") {
        CHECK(job.stage() == job_stage::stopped);
        CHECK(job.living() == 0);
        continue;
      }
      CHECK(job.stage() == job_stage::running);
      CHECK(job.living() == 5);
      CHECK(job.manager().context().job().restart_count == (at == "restarts" ? 1 : 0));
      CHECK(job.starts(id("decode", 1)) == (at == "restarts" ? 2 : 1));
      CHECK(job.starts(id("router", 0)) == (at == "restarts" ? 2 : 1));
    }
  }
}

// --- each step ------------------------------------------------------------------------

namespace {

mw::job_graph troubled_job() {
  const mw::retry_budget few{2, std::chrono::hours(1)};
  mw::job_graph g("troubled");
  g.whole_job = {1, std::chrono::hours(1)};
  g.role("router").run({"router"}).after("actor");
  g.role("decode").run({"decode"}).count(1, 2, 2);
  g.role("actor").run({"actor"}).count(2);
  g.edge("ring", "actor", "actor").bulk(mw::group).restart_together();
  g.role("fragile").run({"fragile"}).restart(mw::restart_when::on_failure, few);
  g.role("main").run({"main"}).restart(mw::restart_when::never);
  g.role("driver").run({"driver"}).driver().restart(mw::restart_when::never);
  return g;
}

/// The third failure spends its budget, so that the whole job starts again, or ends.
void fail_too_often(managed_job& job) {
  for (int crash = 0; crash < 3; ++crash) {
    CHECK(job.end_program(id("fragile", 0), 2));
    job.settle(12);
  }
}

/// Of each kind of trouble one after the other.
void live_through_trouble(managed_job& job) {
  job.settle(12);
  fail_too_often(job);
  CHECK(job.end_program(id("decode", 1), 7));
  job.settle(8);
  CHECK(job.end_program(id("actor", 0), 1));
  job.settle(10);
  job.kill_agent("b");
  job.start_agent("b");
  job.settle(10);
}

std::string text_of_job(const managed_job& job) {
  const mw::detail::job_record& record = job.context().job();
  return "exit code " + std::to_string(record.exit_code) + ", restarts " +
         std::to_string(record.restart_count) + ", " +
         std::string(name_of(record.stage)) + ": " + record.why + "\n";
}

/// What is recorded, without what depends on when and where it was: an end that was
/// ordered may come ahead of the record of the next place, or behind it.
std::string text_of_instances(const managed_job& job) {
  std::string text;
  for (std::size_t n = 0; n < job.context().size(); ++n) {
    const mw::detail::instance_record& record = job.context().at(n);
    text += job.context().id(n).text() + " " + std::string(name_of(record.phase)) +
            ", incarnation " + std::to_string(record.incarnation);
    const bool is_told = record.exit && record.exit->kind != mw::exit_kind::stopped;
    text += (is_told ? ", " + record.exit->text : "") + "\n";
  }
  return text;
}

std::string text_of_failures(const managed_job& job) {
  std::string text;
  for (std::size_t n = 0; n < job.context().size(); ++n)
    text += job.context().id(n).text() + " " +
            std::to_string(job.context().at(n).failures.size()) + "\n";
  return text;
}

/// What is recorded in the middle of its trouble, and at its end.
struct course {
  std::string middle;
  std::string end;
  std::size_t steps = 0;
};

template <class End>
course course_of_job(std::size_t last_step, End end) {
  managed_job job(troubled_job(), {"a", "b"});
  job.die_before_step(last_step);
  live_through_trouble(job);
  course all;
  all.middle = text_of_job(job) + text_of_instances(job) + text_of_failures(job);
  end(job);
  job.settle(10);
  all.end = text_of_job(job) + text_of_instances(job);
  all.steps = job.steps();
  CHECK(job.stage() == job_stage::stopped);
  CHECK(job.living() == 0);
  return all;
}

/// Has a master die before each step of that course, and compares what comes of it.
template <class End>
void check_each_step(std::size_t first, int exit_code, End end) {
  const course unharmed = course_of_job(SIZE_MAX, end);
  CAPTURE(unharmed.middle);
  CAPTURE(unharmed.end);
  REQUIRE(unharmed.end.starts_with("exit code " + std::to_string(exit_code) +
                                   ", restarts 1, stopped"));
  REQUIRE(unharmed.steps > first);
  for (std::size_t step = first; step < unharmed.steps; ++step) {
    CAPTURE(step);
    const course harmed = course_of_job(step, end);
    CHECK(harmed.middle == unharmed.middle);
    CHECK(harmed.end == unharmed.end);
  }
}

}  // namespace

TEST_CASE(
    "graph B56, G-a to G-f: a master that dies before any one step changes no end") {
  check_each_step(0, 5,
                  [](managed_job& job) { CHECK(job.end_program(id("driver", 0), 5)); });
}

TEST_CASE("graph B56: that an instance was the last of its role is not forgotten") {
  // From about where the job is in the middle of its trouble.
  constexpr std::size_t late = 100;
  SUBCASE("it is never started again") {
    check_each_step(late, 6,
                    [](managed_job& job) { CHECK(job.end_program(id("main", 0), 6)); });
  }
  SUBCASE("all budgets are spent") { check_each_step(late, 1, fail_too_often); }
}

// --- a stop at each step --------------------------------------------------------------

namespace {

/// What is under way when the job is told to stop.
std::string moment_of(const managed_job& job) {
  const mw::detail::job_context& all = job.context();
  std::string moment = all.job().restart_count == 0 ? "first" : "again";
  moment += "," + std::string(name_of(all.job().stage));
  std::size_t running = 0;
  for (std::size_t n = 0; n < all.size(); ++n) {
    using mw::detail::instance_phase;
    if (all.at(n).phase == instance_phase::running) ++running;
    const bool recovers = all.at(n).phase == instance_phase::waiting &&
                          all.job().stage == job_stage::running;
    if (recovers) moment += "," + all.id(n).role + " waits";
  }
  if (running > 0 && running < all.size()) moment += ",some run";
  return moment;
}

/// Goes through the job's troubles until it is told to stop. Returns at which moment that
/// was; empty: there are fewer steps.
std::string stop_at_step(std::size_t step, bool master_dies) {
  managed_job job(troubled_job(), {"a", "b"});
  // Something lives on for some turns, in which nothing may be started.
  job.times_until_ended = 4;
  std::string moment;
  job.as_stop_is_asked = [&] { moment = moment_of(job); };
  job.ask_to_stop_before_step(step);
  if (master_dies) job.die_before_step(step);
  const auto fail = [&job](const mw::instance_id& which, int code) {
    CHECK(job.end_program(which, code));
    job.settle(20);
  };
  job.settle(20);
  for (int crash = 0; crash < 3 && !job.is_stop_asked(); ++crash)
    fail(id("fragile", 0), 2);
  if (!job.is_stop_asked()) fail(id("decode", 1), 7);
  if (!job.is_stop_asked()) fail(id("actor", 0), 1);
  if (!job.is_stop_asked()) {
    job.kill_agent("b");
    job.start_agent("b");
    job.settle(20);
  }
  if (!job.is_stop_asked()) return {};
  job.settle(30);
  CHECK(job.stage() == job_stage::stopped);
  CHECK(job.living() == 0);
  CHECK(job.context().job().exit_code == 0);
  CHECK(job.context().job().why == "it is told to");
  for (std::size_t n = 0; n < job.context().size(); ++n)
    CHECK(job.context().at(n).phase != mw::detail::instance_phase::running);
  return moment;
}

}  // namespace

TEST_CASE("graph B11, B55: a job that is told to stop at any one step ends, G-f") {
  bool master_dies = false;
  SUBCASE("its master lives") {}
  SUBCASE("its master dies with that step") { master_dies = true; }
  std::string moments;
  std::size_t step = 0;
  for (;; ++step) {
    CAPTURE(step);
    const std::string moment = stop_at_step(step, master_dies);
    if (moment.empty()) break;
    moments += moment + "\n";
  }
  CHECK(step > 80);
  CAPTURE(moments);
  for (const char* const moment :
       {"first,starting,some run", "first,running", "again,starting,some run",
        "again,running", "fragile waits", "decode waits", "actor waits,actor waits"})
    CHECK_MESSAGE(moments.find(moment) != std::string::npos, moment);
}
