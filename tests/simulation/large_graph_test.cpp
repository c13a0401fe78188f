// A large job in virtual time, by seed: 1,000 instances on 100 agents. Programs, agents
// and masters are killed, and agents are cut off (laws G-a to G-f).
#include <doctest/doctest.h>

#include <map>
#include <string>

#include "simulation/seeds.hpp"
#include "simulation/simulated_graph.hpp"

using namespace manyworlds_tests;

namespace {

constexpr std::size_t agents = 100;
constexpr std::size_t instances = 1000;

mw::job_graph large_graph() {
  const mw::retry_budget many{1000, std::chrono::hours(10)};
  mw::job_graph g("large");
  const auto add = [&](const char* name, std::uint32_t count) {
    g.role(name)
        .run({"program"})
        .count(count)
        .restart(mw::restart_when::on_failure, many);
  };
  add("cache", 199);
  add("server", 600);
  add("actor", 100);
  add("learner", 100);
  add("driver", 1);
  g.role("server").after("cache");
  g.role("driver").driver();
  // Those of one index are a region of two.
  g.edge("ring", "actor", "learner").bulk(mw::aligned).restart_together();
  return g;
}

/// Messages come whole and at once, so that a step is about a message.
mw::simulation_options plain_network() {
  mw::simulation_options network;
  network.short_transfers = false;
  network.split_segments = false;
  network.late_requests = false;
  return network;
}

std::string node_name(std::uint64_t n) { return "n" + std::to_string(n); }

struct large_job {
  explicit large_job(std::uint64_t seed, std::size_t nodes = agents)
      : graph(seed, large_graph(), plain_network()) {
    for (std::size_t n = 0; n < nodes; ++n) graph.add_node(node_name(n));
    graph.start_master();
  }

  mw::detail::seeded_random& random() { return graph.all.sim.random(); }
  void complain(std::string what) { graph.wrong.push_back(std::move(what)); }

  void kill_programs(std::uint64_t count) {
    for (std::uint64_t i = 0; i < count; ++i) {
      const auto& [role, of_role] = roles[random().below(roles.size())];
      const mw::instance_id id{role, static_cast<std::uint32_t>(random().below(of_role))};
      if (graph.kill_program(id)) ++kills[id];
    }
  }
  void cut_off_one(mw::duration span) {
    member_process* const agent = graph.agent(node_name(random().below(agents)));
    if (graph.master_process != nullptr)
      graph.all.partition(*agent, *graph.master_process, span);
  }
  void must_be_whole() {
    if (!graph.is_whole(instances, 60s)) complain("the job is not whole again");
  }

  /// No agent dies: each incarnation but the first follows a kill, which is charged.
  void check_each_kill_is_charged_once() {
    const mw::detail::job_context job = graph.recorded();
    for (std::size_t n = 0; n < job.size(); ++n) {
      const mw::instance_id& id = job.id(n);
      const mw::detail::instance_record& own = job.at(n);
      if (graph.starts_of(id) != own.incarnation)
        complain(id.text() + " was not started as often as is recorded");
      std::size_t charged = own.failures.size();
      if (id.role == "actor" || id.role == "learner") {
        // A region recovers for one of its failures, and its members together.
        const mw::instance_id other{id.role == "actor" ? "learner" : "actor", id.index};
        const mw::detail::instance_record& partner = job.at(job.find(other).value());
        if (partner.incarnation != own.incarnation)
          complain(id.text() + " was not started with its region");
        if (charged > kills[id]) complain(id.text() + " is charged for another's end");
        charged += partner.failures.size();
      } else if (charged != kills[id]) {
        complain(id.text() + " was killed " + std::to_string(kills[id]) +
                 " times, and charged " + std::to_string(charged) + " times");
      }
      if (own.incarnation != 1 + charged)
        complain(id.text() + " was started again for no failure of its region");
    }
  }
  void check_none_is_charged_for_another() {
    const mw::detail::job_context job = graph.recorded();
    for (std::size_t n = 0; n < job.size(); ++n)
      if (job.at(n).failures.size() > kills[job.id(n)])
        complain(job.id(n).text() + " is charged for what it has not done");
  }

  /// Law G-f.
  void end() {
    graph.drivers_end = true;
    const auto is_over = [this] {
      return graph.exit_code && graph.agents_left() == 0 && graph.living() == 0;
    };
    if (!graph.leads_on_until(is_over, 60s)) complain("something of the job is left");
  }

  simulated_graph graph;
  std::map<mw::instance_id, std::size_t> kills;
  const std::vector<std::pair<std::string, std::uint64_t>> roles{
      {"cache", 199}, {"server", 600}, {"actor", 100}, {"learner", 100}};
};

/// Of which it does not matter where it ran.
std::string unharmed_end() {
  large_job job(0, agents / 10);
  job.must_be_whole();
  job.end();
  for (const std::string& each : job.graph.wrong) FAIL_CHECK(each);
  CHECK(job.graph.incarnations.size() == instances);
  return job.graph.end_text();
}

/// Programs and masters are killed, also at a record, and agents are cut off for a while.
void hurt_programs_and_masters(large_job& job) {
  const std::size_t write = job.graph.kept.writes + 1 + job.random().below(12);
  const bool has_effect = job.random().below(2) == 0;
  job.graph.kept.kills = [&graph = job.graph, write, has_effect](std::size_t n,
                                                                 bool has) {
    const bool dies = n == write && has == has_effect;
    if (dies) graph.kill_master();
    return dies;
  };
  for (int step = 0; step < 3; ++step) {
    job.kill_programs(1 + job.random().below(20));
    if (job.random().below(3) == 0) job.cut_off_one(job.random().at_most(2s));
    job.graph.all.run_for(job.random().at_most(200ms));
    if (job.random().below(3) == 0) job.graph.kill_master();
    job.graph.all.run_for(job.random().at_most(100ms));
    if (job.graph.master_process == nullptr) job.graph.start_master();
  }
}

/// Agents die with all that they have, and half of them are followed by others. The
/// master hears of it before it dies, since what it has not heard takes 30 s.
void hurt_agents(large_job& job) {
  for (int i = 0; i < 5; ++i) {
    const std::string node = node_name(job.random().below(agents));
    if (job.graph.agent(node) == nullptr) continue;
    job.graph.kill_agent(node);
    if (job.random().below(2) == 0) job.graph.start_agent(node);
    job.kill_programs(3);
  }
  job.graph.all.run_for(300ms);
  job.graph.kill_master();
}

seed_report run_large_seed(std::uint64_t seed, const std::string& unharmed) {
  large_job job(seed);
  job.must_be_whole();
  hurt_programs_and_masters(job);
  job.must_be_whole();
  job.check_each_kill_is_charged_once();
  hurt_agents(job);
  job.must_be_whole();
  job.check_none_is_charged_for_another();
  job.end();
  if (job.graph.end_text() != unharmed)
    job.complain("it ends as no unharmed run does:\n" + job.graph.end_text());
  return {job.graph.wrong, job.graph.all.last_lines(), {}};
}

}  // namespace

TEST_CASE("graph G-a to G-f: 1,000 instances on 100 agents end as if nothing had been") {
  const std::string unharmed = unharmed_end();
  REQUIRE(unharmed.starts_with("stopped, exit code 0, restarts 0"));
  for_each_seed(1, 1 + seed_count(200) / 1000,
                [&](std::uint64_t seed) { return run_large_seed(seed, unharmed); });
}
