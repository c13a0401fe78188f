// Jobs of roles in virtual time, by seed: the product's master and agents, killed at any
// moment (laws G-a to G-f).
#include <doctest/doctest.h>

#include <string>

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

}  // namespace

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
