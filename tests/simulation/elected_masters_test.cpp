// Masters that elect the one that leads, in virtual time and by seed: one lives on while
// the next one leads, and agents are cut off (laws G-a to G-f).
#include <doctest/doctest.h>

#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include "simulation/seeds.hpp"
#include "simulation/simulated_masters.hpp"

using namespace manyworlds_tests;

namespace {

constexpr std::size_t instances_of_contested = 8;
// The product's is 30 s. A master that begins as an agent is cut off counts from then.
constexpr mw::duration least_cut_off = 27s;
// An agent gives a silent master up after 5 s, and then looks for the next one.
constexpr mw::duration until_agents_come = 6s;

mw::job_graph contested_graph() {
  const mw::retry_budget many{1000, std::chrono::hours(10)};
  mw::job_graph g("contested");
  const auto add = [&](const char* name, std::uint32_t count) {
    g.role(name)
        .run({"program"})
        .count(count)
        .restart(mw::restart_when::on_failure, many);
  };
  add("router", 1);
  add("prefill", 2);
  add("decode", 2);
  add("actor", 2);
  add("driver", 1);
  g.role("router").after("decode");
  g.role("driver").driver().after("actor");
  g.edge("kv", "prefill", "decode").bulk(mw::pairs);
  g.edge("ring", "actor", "actor").bulk(mw::group).restart_together();
  return g;
}

enum class master_harm { frozen, without_stores, island };

/// A job with a standby, and what was done to it.
struct contested_job {
  explicit contested_job(std::uint64_t seed)
      : graph(seed, contested_graph()), masters(graph) {
    for (const char* const name : {"a", "b", "c"}) graph.add_node(name);
    // Only one that was cut off for that long may have what was replaced meanwhile, until
    // it has heard so.
    graph.may_live_on = [this](const simulated_incarnation& older) {
      return older.node == cut_node && now() - missed_since >= least_cut_off &&
             now() < cut_until + 10s;
    };
    masters.start();
    masters.start();
  }

  [[nodiscard]] mw::time_point now() const { return graph.all.sim.now(); }
  mw::detail::seeded_random& random() { return graph.all.sim.random(); }
  void complain(std::string what) { graph.wrong.push_back(std::move(what)); }

  void harm(elected_master& which, master_harm how, mw::duration span) {
    harmed_until = std::max(harmed_until, now() + span);
    if (how == master_harm::frozen)
      masters.freeze(which, span);
    else
      masters.cut_off(which, span, how == master_harm::island);
  }
  /// No master hears that agent. One is cut off at a time.
  void cut_agent(const std::string& node, mw::duration span) {
    if (now() < cut_until + 10s) return;
    cut_node = node;
    // A master counts from its own begin where the agent has not come yet.
    const bool may_be_late = now() - graph.kept.term_since < until_agents_come;
    missed_since = may_be_late ? graph.kept.term_since : now();
    cut_until = now() + span;
    harmed_until = std::max(harmed_until, cut_until);
    was_cut_for_long = was_cut_for_long || cut_until - missed_since >= least_cut_off - 2s;
    for (const auto& each : masters.all())
      graph.all.partition(*graph.agent(node), *each->process, span);
  }
  void add_master() {
    elected_master& own = masters.start();
    if (now() < cut_until)
      graph.all.partition(*graph.agent(cut_node), *own.process, cut_until - now());
  }
  void kill_program() {
    const std::vector<mw::instance_id> all{{"router", 0}, {"prefill", 0}, {"prefill", 1},
                                           {"decode", 0}, {"decode", 1},  {"actor", 0},
                                           {"actor", 1}};
    const mw::instance_id& id = all[random().below(all.size())];
    if (graph.kill_program(id)) ++kills[id];
  }

  void must_be_whole() {
    int calm = 0;
    const mw::time_point limit = now() + 150s;
    while (calm < 4 && now() < limit) {
      graph.all.run_for(100ms);
      const bool is_whole = graph.living() == instances_of_contested &&
                            graph.recorded_to_run() == instances_of_contested;
      calm = is_whole ? calm + 1 : 0;
    }
    if (calm < 4) complain("the job is not whole again");
  }
  /// Laws G-a, G-d and G-e, once all is calm.
  void check_what_is() {
    const mw::detail::job_context job = graph.recorded();
    for (const simulated_incarnation& each : graph.incarnations) {
      const auto n = job.find(each.instance).value();
      if (each.is_alive && each.number != job.at(n).incarnation)
        complain(each.instance.text() + " lives on beside a newer incarnation");
    }
    std::size_t caused = instances_of_contested;
    for (const auto& [id, count] : kills)
      caused += id.role == "actor" ? 2 * count : count;
    if (!was_cut_for_long && graph.incarnations.size() > caused)
      complain("something was started again that nothing had happened to");
    for (std::size_t n = 0; n < job.size(); ++n)
      if (job.at(n).failures.size() > kills[job.id(n)])
        complain(job.id(n).text() + " is charged for what it has not done");
    if (job.job().restart_count != 0) complain("the whole job was started again");
  }
  /// Law G-f, and one result: a master that went on in an older term would never hear of
  /// the end.
  void end() {
    graph.drivers_end = true;
    const auto is_over = [this] {
      return graph.agents_left() == 0 && graph.living() == 0 &&
             std::none_of(masters.all().begin(), masters.all().end(),
                          [](const auto& each) { return each->may_go_on(); });
    };
    if (!graph.all.run_until(is_over, 90s)) complain("something of the job is left");
    for (const auto& each : masters.all())
      if (each->exit_code.value_or(0) != 0) complain("a master tells another result");
  }

  simulated_graph graph;
  elected_masters masters;
  std::map<mw::instance_id, std::size_t> kills;
  std::string cut_node;
  mw::time_point missed_since{};
  mw::time_point cut_until{};
  mw::time_point harmed_until{};
  bool was_cut_for_long = false;
};

void hurt_once(contested_job& job) {
  elected_master* const leader = job.masters.leader();
  const std::uint64_t what = job.random().below(8);
  if (what < 2) {
    const char* const nodes[] = {"a", "b", "c"};
    job.cut_agent(nodes[job.random().below(3)], job.random().at_most(60s));
  } else if (what < 4) {
    job.kill_program();
  } else if (what == 4 && leader != nullptr) {
    job.graph.all.kill(*leader->process);
    job.add_master();
  } else if (leader != nullptr && !leader->is_harmed) {
    // Its lease lasts for 5 s.
    job.harm(*leader, static_cast<master_harm>(what - 5), job.random().at_most(20s));
  }
}

std::string unharmed_end_of_contested() {
  contested_job job(0);
  job.must_be_whole();
  job.end();
  for (const std::string& each : job.graph.wrong) FAIL_CHECK(each);
  CHECK(job.graph.incarnations.size() == instances_of_contested);
  return job.graph.end_text();
}

seed_report run_contested_seed(std::uint64_t seed, const std::string& unharmed) {
  contested_job job(seed);
  if (job.random().below(4) != 0) job.must_be_whole();
  for (int step = 0; step < 6; ++step) {
    job.graph.all.run_for(job.random().at_most(4s));
    hurt_once(job);
  }
  const mw::duration left = job.harmed_until - job.now();
  if (left > mw::duration::zero()) job.graph.all.run_for(left);
  job.must_be_whole();
  job.graph.all.run_for(10s);
  job.check_what_is();
  job.end();
  if (job.graph.end_text() != unharmed)
    job.complain("it ends as no unharmed run does:\n" + job.graph.end_text());
  return {job.graph.wrong, job.graph.story(), {}};
}

}  // namespace

TEST_CASE("graph B67: an old master that lives on is deposed, and stands by") {
  contested_job job(7);
  job.must_be_whole();
  elected_master* const old = job.masters.leader();
  REQUIRE(old != nullptr);
  auto how = master_harm::frozen;
  SUBCASE("it was frozen") {}
  SUBCASE("its agents hear it, and no store does") { how = master_harm::without_stores; }
  SUBCASE("it was an island") { how = master_harm::island; }
  job.harm(*old, how, 12s);
  // A failure that the old one has yet to record, if it hears of it.
  job.graph.all.run_for(200ms);
  CHECK(job.graph.kill_program({"decode", 1}));
  const auto is_followed = [&] { return job.graph.kept.term == 2; };
  REQUIRE_MESSAGE(job.graph.all.run_until(is_followed, 12s), job.graph.story());
  elected_master* const next = job.masters.leader();
  REQUIRE(next != old);
  job.must_be_whole();
  job.graph.all.run_for(20s);
  CHECK(job.graph.kept.term == 2);
  CHECK(job.graph.starts_of({"decode", 1}) == 2);
  CHECK(job.graph.incarnations.size() == instances_of_contested + 1);
  // It leads again when the other one is gone, which it sees at once.
  job.graph.all.kill(*next->process);
  const auto leads_again = [&] { return job.masters.leader() == old; };
  CHECK_MESSAGE(job.graph.all.run_until(leads_again, 2s), job.graph.story());
  job.must_be_whole();
  CHECK(job.graph.incarnations.size() == instances_of_contested + 1);
  job.end();
  CHECK(old->exit_code == 0);
  for (const std::string& each : job.graph.wrong) FAIL_CHECK(each);
}

TEST_CASE("graph G-a to G-f: agents are cut off, and old masters live on, by seed") {
  const std::string unharmed = unharmed_end_of_contested();
  REQUIRE(unharmed.starts_with("stopped, exit code 0, restarts 0"));
  for_each_seed(1, 1 + seed_count(200) / 2,
                [&](std::uint64_t seed) { return run_contested_seed(seed, unharmed); });
}
