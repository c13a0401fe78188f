// Jobs of roles in virtual time, by seed: the product's master and agents, killed at any
// moment (laws G-a to G-f).
#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "manyworlds/coro/when_any.hpp"
#include "manyworlds/serve/connect.hpp"
#include "mpmd/agent_words.hpp"
#include "mpmd/job_meeting.hpp"
#include "simulation/seeds.hpp"
#include "simulation/simulated_graph.hpp"

using namespace manyworlds_tests;

namespace {

mw::job_graph serving_graph() {
  const mw::retry_budget many{1000, std::chrono::hours(10)};
  mw::job_graph g("serving");
  g.role("router")
      .run({"program"})
      .after("decode")
      .restart(mw::restart_when::on_failure, many);
  g.role("prefill")
      .run({"program"})
      .count(1, 2, 2)
      .restart(mw::restart_when::on_failure, many);
  g.role("decode")
      .run({"program"})
      .count(1, 2, 2)
      .restart(mw::restart_when::on_failure, many);
  g.edge("kv", "prefill", "decode").bulk(mw::pairs);
  return g;
}

/// A link of an agent, the words of which a test writes by hand.
struct written_link {
  mw::detail::agent_word hello;
  /// Is said once `is_due`.
  mw::detail::agent_word late;
  bool is_due = false;
  std::vector<mw::detail::agent_word> told;

  [[nodiscard]] bool has_heard(mw::detail::agent_wire::word_kind kind,
                               std::uint64_t incarnation) const {
    for (const mw::detail::agent_word& each : told)
      if (each.kind == kind && each.incarnation == incarnation) return true;
    return false;
  }
};

mw::task<void> speak_over(member_process& process, std::string job, written_link& own) {
  const auto serve = [&own](mw::world& w) -> mw::task<void> {
    auto hear = [&]() -> mw::task<void> {
      for (;;) own.told.push_back(co_await mw::detail::receive_word(w, 0));
    };
    auto say = [&]() -> mw::task<void> {
      co_await mw::detail::send_word(w, 0, own.hello);
      while (!own.is_due) co_await mw::sleep_for(1ms);
      co_await mw::detail::send_word(w, 0, own.late);
      co_await mw::sleep_for(1h);
    };
    co_await mw::when_any(hear(), say());
  };
  mw::detail::job_meeting meeting(*process.rendezvous, job);
  const mw::service_name agents = mw::detail::job_meeting::agents_of(1);
  try {
    co_await mw::connect(process.runtime(), meeting.keys(), {.service = agents}, serve);
  } catch (const mw::world_error&) {
    // The master has given it up.
  }
}

/// With a region of two and a driver.
mw::job_graph driven_graph() {
  mw::job_graph g = serving_graph();
  g.role("actor").run({"program"}).count(2);
  g.edge("ring", "actor", "actor").bulk(mw::group).restart_together();
  g.role("driver").run({"program"}).driver().after("actor");
  return g;
}

/// What came of a course of some trouble, and how many writes it took.
struct driven_course {
  std::string middle;
  std::string end;
  std::size_t writes = 0;
  bool is_harmed = false;
};

/// What becomes of a master at that write, ahead of its effect or behind it.
struct harm {
  std::size_t write = 0;  ///< 0: nothing
  bool has_effect = false;
  /// It is frozen for that long, while the next one starts; zero: it is killed.
  mw::duration frozen{};

  [[nodiscard]] bool is_freeze() const { return frozen > mw::duration::zero(); }
};

/// What a harm has done to its master, which was frozen or killed.
struct harm_done {
  bool is_done = false;
  /// What it recorded last was that the job is over, which is a result to give.
  bool was_over = false;
};

void arrange(const harm& planned, simulated_graph& job, harm_done& done) {
  const auto is_now = [&job, &done, planned](std::size_t number, bool has) {
    if (number != planned.write || has != planned.has_effect) return false;
    const bool was_begun = !job.kept.rows.empty();
    done = {true,
            was_begun && job.recorded().job().stage == mw::detail::job_stage::stopped};
    return true;
  };
  if (planned.is_freeze()) {
    job.kept.freezes = [&job, is_now, span = planned.frozen](std::size_t n, bool has) {
      if (is_now(n, has)) job.freeze_master(span);
    };
  } else {
    job.kept.kills = [&job, is_now](std::size_t n, bool has) {
      const bool dies = is_now(n, has);
      if (dies) job.kill_master();
      return dies;
    };
  }
}

driven_course run_driven_course(const harm& planned) {
  harm_done harmed;
  simulated_graph job(3, driven_graph());
  arrange(planned, job, harmed);
  job.add_node("a");
  job.add_node("b");
  job.start_master();
  CHECK_MESSAGE(job.is_whole(8, 60s), job.story());
  CHECK(job.kill_program({"decode", 1}));
  CHECK_MESSAGE(job.is_whole(8, 60s), job.story());
  CHECK(job.kill_program({"actor", 0}));
  CHECK_MESSAGE(job.is_whole(8, 60s), job.story());
  driven_course all;
  const mw::detail::job_context middle = job.recorded();
  for (std::size_t n = 0; n < middle.size(); ++n)
    all.middle += middle.id(n).text() + " " + std::to_string(middle.at(n).incarnation) +
                  " " + std::to_string(middle.at(n).failures.size()) + "\n";
  job.drivers_end = true;
  const bool is_over = job.leads_on_until([&] { return job.exit_code.has_value(); }, 60s);
  CHECK_MESSAGE(is_over, job.story());
  // Law G-f.
  CHECK(job.leads_on_until([&] { return job.agents_left() == 0; }, 20s));
  CHECK(job.living() == 0);
  // A master that was frozen finds out that it is no longer the one, and has no result
  // to give unless it knew that the job was over.
  const bool was_frozen = planned.is_freeze() && harmed.is_done;
  const auto have_ended = [&] {
    return job.results + job.deposed_masters() == (was_frozen ? 2 : 1);
  };
  CHECK_MESSAGE(job.leads_on_until(have_ended, 60s), job.story());
  CHECK(job.results == (was_frozen && harmed.was_over ? 2 : 1));
  CHECK(job.exit_code == 0);
  for (const std::string& each : job.wrong) FAIL_CHECK(each);
  CHECK(job.kept.term == (harmed.is_done ? 2 : 1));
  all.is_harmed = harmed.is_done;
  all.end = job.end_text();
  all.writes = job.kept.writes;
  return all;
}

}  // namespace

TEST_CASE("graph G-e: what an agent's replaced link still holds is no news") {
  using mw::detail::agent_wire::word_kind;
  mw::job_graph g("linked");
  g.role("one").run({"program"});
  simulated_graph job(1, g);
  job.limits.limits.nodes = 1;
  job.start_master();
  written_link first;
  first.hello.kind = word_kind::hello;
  first.hello.agent = "agent";
  first.hello.node.name = "a";
  first.hello.node.cpus = {{0, {0}}};
  first.hello.node.memory = std::uint64_t{1} << 30U;
  member_process& before = job.all.add("before");
  before.start(speak_over(before, "linked", first));
  const auto starts = [&] { return first.has_heard(word_kind::ensure, 1); };
  REQUIRE_MESSAGE(job.all.run_until(starts, 30s), job.story());

  // The agent connects again, where its incarnation is ready.
  written_link second;
  second.hello = first.hello;
  mw::detail::instance_report& has = second.hello.has.emplace_back();
  has.instance = {"one", 0};
  has.incarnation = 1;
  has.life = mw::detail::instance_life::ready;
  member_process& after = job.all.add("after");
  after.start(speak_over(after, "linked", second));
  const auto is_welcome = [&] { return second.has_heard(word_kind::welcome, 0); };
  REQUIRE_MESSAGE(job.all.run_until(is_welcome, 30s), job.story());

  first.late.kind = word_kind::report;
  first.late.has = second.hello.has;
  first.late.has.front().life = mw::detail::instance_life::ended;
  first.late.has.front().exit = {mw::exit_kind::exited, 1, 0, "exited with code 1"};
  first.is_due = true;
  job.all.run_for(5s);
  CHECK_FALSE_MESSAGE(second.has_heard(word_kind::ensure, 2), job.story());
  job.all.kill(before);
  job.all.kill(after);
}

namespace {

/// Harms a master at each of its writes, and compares what comes of it.
template <class Span>
void check_each_write(Span frozen_for) {
  const driven_course unharmed = run_driven_course({});
  CAPTURE(unharmed.middle);
  CAPTURE(unharmed.end);
  REQUIRE(unharmed.writes > 10);
  CHECK(unharmed.end.starts_with("stopped, exit code 0, restarts 0"));
  std::size_t harms = 0;
  for (std::size_t write = 1; write <= unharmed.writes; ++write) {
    for (const bool has_effect : {false, true}) {
      CAPTURE(write);
      CAPTURE(has_effect);
      const driven_course harmed =
          run_driven_course({write, has_effect, frozen_for(write)});
      CHECK(harmed.middle == unharmed.middle);
      CHECK(harmed.end == unharmed.end);
      harms += harmed.is_harmed ? 1 : 0;
    }
  }
  // What is written together may differ a little from the unharmed course.
  CHECK(harms > 20);
}

}  // namespace

TEST_CASE("graph B56, G-a to G-f: a master killed at any one record changes no end") {
  check_each_write([](std::size_t) { return mw::duration::zero(); });
}

TEST_CASE(
    "graph B67, G-a to G-f: a master frozen at any one record is deposed, no more") {
  // It goes on when the next one leads since just now, before its agents have missed it,
  // or long after that.
  mw::duration span{};
  SUBCASE("for a moment") { span = 150ms; }
  SUBCASE("for less than it takes to be missed") { span = 700ms; }
  SUBCASE("for longer") { span = 9s; }
  check_each_write([&](std::size_t) { return span; });
}

namespace {

/// A course of some trouble, at one write of which the job is told to stop. Returns
/// whether there are that many writes ahead of its last trouble.
bool ends_as_told_at(std::size_t write, bool master_dies) {
  simulated_graph job(3, driven_graph());
  // What is replaced takes a while to end: its successor waits at the agent.
  job.takes_to_end = 300ms;
  bool is_told = false;
  job.kept.kills = [&](std::size_t number, bool has_effect) {
    if (number != write || !has_effect) return false;
    is_told = true;
    job.ask_to_stop();
    if (master_dies) job.kill_master();
    return master_dies;
  };
  job.add_node("a");
  job.add_node("b");
  job.start_master();
  const auto is_calm_or_told = [&] {
    return is_told || (job.living() == 8 && job.recorded_to_run() == 8);
  };
  CHECK(job.leads_on_until(is_calm_or_told, 60s));
  if (!is_told) CHECK(job.kill_program({"decode", 1}));
  job.all.run_for(100ms);
  CHECK(job.leads_on_until(is_calm_or_told, 60s));
  if (!is_told) CHECK(job.kill_program({"actor", 0}));
  job.all.run_for(100ms);
  CHECK(job.leads_on_until(is_calm_or_told, 60s));
  if (!is_told) return false;
  const auto is_over = [&] {
    return job.exit_code && job.agents_left() == 0 && job.living() == 0;
  };
  CHECK_MESSAGE(job.leads_on_until(is_over, 60s), job.story());
  CHECK(job.exit_code == 0);
  CHECK(job.end_text().starts_with("stopped, exit code 0, restarts 0: it is told to"));
  for (const std::string& each : job.wrong) FAIL_CHECK(each);
  return true;
}

}  // namespace

TEST_CASE(
    "graph B11, G-f: in virtual time a job that is told to stop at any record ends") {
  bool master_dies = false;
  SUBCASE("its master lives") {}
  SUBCASE("its master dies at that record") { master_dies = true; }
  std::size_t write = 1;
  while (ends_as_told_at(write, master_dies)) {
    CAPTURE(write);
    ++write;
  }
  CHECK(write > 8);
}

TEST_CASE("graph G-c, G-d: who is silent is left alone until it is cut off") {
  simulated_graph job(5, serving_graph());
  job.add_node("a");
  job.add_node("b");
  job.start_master();
  REQUIRE_MESSAGE(job.is_whole(5, 30s), job.story());
  const std::size_t starts = job.incarnations.size();
  SUBCASE("it is back in time") {
    job.all.partition(*job.agent("b"), *job.master_process, 20s);
    job.all.run_for(30s);
    CHECK_MESSAGE(job.incarnations.size() == starts, job.story());
    CHECK(job.living() == 5);
  }
  SUBCASE("it is back too late, and ends what was replaced") {
    job.may_overlap = true;
    job.all.partition(*job.agent("b"), *job.master_process, 50s);
    job.all.run_for(28s);
    CHECK_MESSAGE(job.incarnations.size() == starts, job.story());
    job.all.run_for(15s);
    CHECK_MESSAGE(job.incarnations.size() > starts, job.story());
    job.all.run_for(20s);
    CHECK_MESSAGE(job.living() == 5, job.story());
    // Law G-e.
    const mw::detail::job_context recorded = job.recorded();
    for (std::size_t n = 0; n < recorded.size(); ++n)
      CHECK(recorded.at(n).failures.empty());
  }
  for (const std::string& each : job.wrong) FAIL_CHECK(each);
}

TEST_CASE("graph B57, G-e: what fails while no master is there is charged, once") {
  simulated_graph job(6, serving_graph());
  job.add_node("a");
  job.start_master();
  REQUIRE_MESSAGE(job.is_whole(5, 30s), job.story());
  job.kill_master();
  REQUIRE(job.kill_program({"decode", 0}));
  job.all.run_for(2s);
  CHECK(job.living() == 4);
  job.start_master();
  REQUIRE_MESSAGE(job.is_whole(5, 30s), job.story());
  job.kill_master();
  job.all.run_for(1s);
  job.start_master();
  REQUIRE_MESSAGE(job.is_whole(5, 30s), job.story());
  const mw::detail::job_context recorded = job.recorded();
  const mw::detail::instance_record& killed =
      recorded.at(recorded.find({"decode", 0}).value());
  CHECK(killed.incarnation == 2);
  CHECK(killed.failures.size() == 1);
  CHECK(job.starts_of({"decode", 0}) == 2);
}

TEST_CASE("graph B54: in virtual time a killed master restarts nothing") {
  simulated_graph job(1, serving_graph());
  job.add_node("a");
  job.add_node("b");
  job.start_master();
  REQUIRE_MESSAGE(job.settles(5, 30s), job.story());
  for (int i = 0; i < 3; ++i) {
    job.kill_master();
    job.all.run_for(1s);
    job.start_master();
    job.all.run_for(3s);
  }
  CHECK_MESSAGE(job.incarnations.size() == 5, job.story());
  CHECK(job.living() == 5);
  CHECK(job.kept.term == 4);
}

TEST_CASE("graph G-a to G-d: whatever is killed, the job is whole again") {
  for_each_seed(0, seed_count(30), [](std::uint64_t seed) {
    seed_report report;
    simulated_graph job(seed, serving_graph());
    job.add_node("a");
    job.add_node("b");
    job.start_master();
    const std::vector<mw::instance_id> all{
        {"router", 0}, {"prefill", 0}, {"prefill", 1}, {"decode", 0}, {"decode", 1}};
    auto& random = job.all.sim.random();
    for (int step = 0; step < 12; ++step) {
      job.all.run_for(random.at_most(step == 0 ? 5s : 1s));
      switch (random.below(5)) {
        case 0:
          job.kill_master();
          break;
        case 1: {
          const std::string node = random.below(2) == 0 ? "a" : "b";
          job.kill_agent(node);
          job.start_agent(node);
          break;
        }
        default:
          (void)job.kill_program(all[random.below(all.size())]);
      }
      job.all.run_for(random.at_most(100ms));
      if (job.master_process == nullptr) job.start_master();
    }
    if (!job.settles(5, 120s)) report.complaints.push_back("the job is not whole again");
    for (const std::string& each : job.wrong) report.complaints.push_back(each);
    report.context = job.story();
    return report;
  });
}

TEST_CASE(
    "graph B62, G-c: without a master all goes on, or for as long as the job says") {
  mw::job_graph g = serving_graph();
  bool is_held = true;
  SUBCASE("by default they hold") {}
  SUBCASE("an absence has an end") {
    is_held = false;
    g.absence = 60s;
  }
  simulated_graph job(11, g);
  job.add_node("a");
  job.add_node("b");
  job.start_master();
  REQUIRE(job.settles(5, 30s));
  // A master that is away for less is not missed, as often as that happens.
  for (int i = 0; i < 3; ++i) {
    job.kill_master();
    job.all.run_for(50s);
    job.start_master();
    job.all.run_for(15s);
    CHECK(job.living() == 5);
    CHECK(job.starts_of({"router", 0}) == 1);
  }
  job.kill_master();
  job.all.run_for(50s);
  CHECK(job.living() == 5);
  job.all.run_for(40s);
  CHECK(job.living() == (is_held ? 5 : 0));
  const auto gave_up =
      std::count_if(job.said.begin(), job.said.end(), [](const std::string& line) {
        return line.find("has heard no master for 60 s") != std::string::npos;
      });
  CHECK(gave_up == (is_held ? 0 : 2));
  for (const std::string& each : job.wrong) FAIL_CHECK(each);
}
