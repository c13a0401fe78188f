// What an instance is told as a rank of torch: by places, restarts and ports.
#include <doctest/doctest.h>

#include <map>
#include <set>
#include <string>
#include <vector>

#include "mpmd/agent_instance.hpp"
#include "mpmd/managed_job.hpp"
#include "mpmd/role_variables.hpp"
#include "mpmd/torch_variables.hpp"

namespace {

using variables = std::map<std::string, std::string>;

mw::job_graph trainers(std::uint32_t count) {
  mw::job_graph g("training");
  g.role("other").run({"other"});
  g.role("trainer").run({"trainer"}).count(count);
  g.place({"trainer"}, mw::place_rule::spread);
  g.edge("ring", "trainer", "trainer").bulk(mw::group).restart_together();
  return g;
}

variables told_to(managed_job& job, std::uint32_t index) {
  const auto n = job.context().find({"trainer", index}).value();
  mw::detail::rank_places places(job.context());
  return mw::detail::torch_variables(job.context(), job.manager().nodes(), places, n);
}

std::string meeting_of(managed_job& job, std::uint32_t index) {
  const variables all = told_to(job, index);
  return all.at("MASTER_ADDR") + ":" + all.at("MASTER_PORT");
}

/// Returns the one that all of that many are told.
std::string meeting_of_all(managed_job& job, std::uint32_t count) {
  std::set<std::string> all;
  for (std::uint32_t n = 0; n < count; ++n) all.insert(meeting_of(job, n));
  REQUIRE(all.size() == 1);
  return *all.begin();
}

}  // namespace

TEST_CASE("graph B2: ranks are told their places on nodes, and where the first one is") {
  managed_job job(trainers(4), {"a", "b"});
  job.settle();
  std::map<std::string, std::set<std::string>> seen;
  for (std::uint32_t n = 0; n < 4; ++n) {
    const variables all = told_to(job, n);
    const std::string& node = job.record({"trainer", n}).place.node;
    CHECK(all.at("LOCAL_WORLD_SIZE") == "2");
    CHECK(all.at("GROUP_WORLD_SIZE") == "2");
    CHECK(all.at("TORCHELASTIC_MAX_RESTARTS") == "3");
    seen[node + " is " + all.at("GROUP_RANK")].insert(all.at("LOCAL_RANK"));
  }
  // Each node has one number, and its ranks are counted there.
  REQUIRE(seen.size() == 2);
  for (const auto& [node, ranks] : seen) CHECK(ranks == std::set<std::string>{"0", "1"});
  const std::string& first = job.record({"trainer", 0}).place.node;
  CHECK(seen.contains(first + " is 0"));
  CHECK(meeting_of_all(job, 4).starts_with(address_of_node(first) + ":2"));
}

TEST_CASE("graph: ranks that start again meet at another port, and others keep theirs") {
  managed_job job(trainers(3), {"a", "b"});
  job.settle();
  const std::string first = meeting_of_all(job, 3);
  // By another master too.
  job.kill_master();
  job.settle(3);
  CHECK(meeting_of_all(job, 3) == first);
  REQUIRE(job.end_program({"trainer", 2}, 1));
  job.settle();
  const std::string second = meeting_of_all(job, 3);
  CHECK(second != first);
  REQUIRE(job.end_program({"other", 0}, 1));
  job.settle();
  CHECK(meeting_of_all(job, 3) == second);
}

TEST_CASE("graph: one that starts ahead of instance 0 is told where that one will be") {
  managed_job job(trainers(2), {"a", "b"});
  job.settle();
  REQUIRE(job.end_program({"trainer", 1}, 1));
  // Both wait for their next start.
  job.turn();
  const auto n = job.context().find({"trainer", 0}).value();
  REQUIRE(job.context().at(n).phase == mw::detail::instance_phase::waiting);
  const std::string ahead = meeting_of(job, 1);
  job.settle();
  REQUIRE(job.is_ready({"trainer", 0}));
  CHECK(meeting_of_all(job, 2) == ahead);
}

TEST_CASE("graph: a new master tells where instance 0 is before its agent has come") {
  managed_job job(trainers(2), {"a", "b"});
  job.settle();
  const std::string before = meeting_of_all(job, 2);
  job.kill_master();
  job.cut_off(job.agents()["a"].has.contains({"trainer", 0}) ? "a" : "b");
  job.start_master();
  job.turn();
  CHECK(meeting_of(job, 1) == before);
}

TEST_CASE("graph: of a region none starts before all have places") {
  mw::job_graph g = trainers(2);
  // A node has room for one of them.
  g.role("trainer").need({.cpus = 3, .memory = 0, .gpus = 0, .labels = {}});
  managed_job job(g, {"a", "b"});
  job.settle();
  const bool is_on_a = job.record({"trainer", 0}).place.node == "a";
  // Without that node instance 0 has no place.
  const std::string lost = is_on_a ? "a" : "b";
  job.kill_agent(lost);
  job.settle(20);
  CHECK(job.record({"trainer", 0}).place.node.empty());
  CHECK(job.starts({"trainer", 1}) == 1);
  job.start_agent(lost);
  job.settle();
  CHECK(job.starts({"trainer", 0}) == 2);
  CHECK(job.starts({"trainer", 1}) == 2);
  static_cast<void>(meeting_of_all(job, 2));
}

TEST_CASE("graph: roles of a job never meet at one port, and two jobs of a name rarely") {
  mw::job_graph g("many");
  for (const char* const name : {"a", "b", "c"}) g.role(name).run({name});
  mw::detail::job_context job(g);
  std::set<std::uint32_t> ports;
  constexpr std::uint32_t most = mw::detail::end_of_rank_ports;
  job.change_job().number = UINT64_MAX - 1;
  // Enough to pass the end of the range, and begin at its start again.
  for (std::uint64_t incarnation = 0; incarnation < 3000; ++incarnation) {
    for (std::size_t role = 0; role < 3; ++role) {
      job.change(role).incarnation = incarnation;
      const std::uint32_t port = mw::detail::rank_port(job, role);
      CHECK(port >= mw::detail::first_rank_port);
      CHECK(port < most);
      CHECK(ports.insert(port).second);
    }
  }
  const std::uint32_t before = mw::detail::rank_port(job, 0);
  job.change_job().number = 4711;
  CHECK(mw::detail::rank_port(job, 0) != before);
  // What is recorded says the same.
  mw::detail::context_values rows;
  for (const auto& change : job.take_changes()) rows[change.key] = change.value.value();
  const mw::detail::job_context again(rows);
  CHECK(mw::detail::rank_port(again, 2) == mw::detail::rank_port(job, 2));
}

TEST_CASE("graph: all of a turn are told their places by one count of each role") {
  mw::job_graph g("places");
  g.role("other").run({"other"}).count(2);
  g.role("actor").run({"actor"}).count(5).kind = mw::role_kind::spmd;
  mw::detail::job_context job(g);
  // The controller of the session is on a node with workers, and one worker on none.
  const std::vector<std::string> nodes{"b", "b", "b", "a", "b", "", "a"};
  for (std::size_t n = 0; n < nodes.size(); ++n) job.change(n).place.node = nodes[n];
  mw::detail::rank_places places(job);
  const auto text = [&](std::size_t n) {
    const mw::detail::rank_place& of = places.of(n);
    return std::to_string(of.local_rank) + "/" + std::to_string(of.local_size) + " on " +
           std::to_string(of.node) + "/" + std::to_string(of.nodes);
  };
  // In another order than they stand in, as orders are.
  CHECK(text(6) == "1/2 on 0/2");
  CHECK(text(1) == "1/2 on 0/1");
  CHECK(text(0) == "0/2 on 0/1");
  CHECK(text(2) == "0/1 on 0/1");
  CHECK(text(3) == "0/2 on 0/2");
  CHECK(text(4) == "0/1 on 1/2");
  CHECK(text(5) == "0/0 on 2/2");
}

TEST_CASE("graph: with GPUs of its own each sees the first of them as device 0") {
  mw::job_graph g("gpus");
  g.role("trainer")
      .run({"trainer"})
      .count(2)
      .need({.cpus = 0, .memory = 0, .gpus = 1, .labels = {}});
  mw::detail::job_context job(g);
  for (std::size_t n = 0; n < 2; ++n) job.change(n).place.node = "a";
  mw::detail::rank_places places(job);
  const variables all = mw::detail::torch_variables(job, {}, places, 1);
  CHECK(all.at("LOCAL_RANK") == "0");
  CHECK(all.at("LOCAL_WORLD_SIZE") == "2");
  CHECK(all.at("GROUP_WORLD_SIZE") == "1");
  // No agent has said where it is.
  CHECK_FALSE(all.contains("MASTER_ADDR"));
  CHECK_FALSE(all.contains("MASTER_PORT"));
}

TEST_CASE("graph: what a role sets of torch's variables wins, and places go together") {
  mw::job_graph g("own");
  g.role("trainer").run({"trainer"}).variable("WORLD_SIZE", "8");
  g.role("trainer").restart(mw::restart_when::never);
  mw::detail::job_context job(g);
  job.change(0).place.node = "a";
  mw::detail::rank_places places(job);
  const variables all = mw::detail::torch_variables(job, {}, places, 0);
  CHECK_FALSE(all.contains("LOCAL_WORLD_SIZE"));
  CHECK_FALSE(all.contains("GROUP_RANK"));
  CHECK(all.at("TORCHELASTIC_MAX_RESTARTS") == "0");

  mw::detail::agent_place place;
  place.job = "own";
  mw::detail::agent_word ensure;
  ensure.instance = {"trainer", 1};
  ensure.incarnation = 3;
  ensure.spec.variables = {{"LOCAL_WORLD_SIZE", "2"}, {"TORCHELASTIC_RUN_ID", "mine"}};
  const auto given = [&] { return variables_of_role(place, ensure, "token"); };
  CHECK(given().at("TORCHELASTIC_RUN_ID") == "mine");
  CHECK(given().at("TORCHELASTIC_RESTART_COUNT") == "2");
  CHECK(given().at("TORCHELASTIC_USE_AGENT_STORE") == "False");
  CHECK(given().at("TORCH_NCCL_ASYNC_ERROR_HANDLING") == "1");
  CHECK(given().at("OMP_NUM_THREADS") == "1");
  // Of what it is bound to OpenMP knows, and what stands in its environment it keeps.
  place.inherited = {{"TORCH_NCCL_ASYNC_ERROR_HANDLING", "0"}};
  ensure.spec.cpus = {4, 5};
  CHECK_FALSE(given().contains("TORCH_NCCL_ASYNC_ERROR_HANDLING"));
  CHECK_FALSE(given().contains("OMP_NUM_THREADS"));
}
