// Job graphs as they are made in C++: roles, edges, rules, the order of starts, regions.
#include "manyworlds/mpmd/job_graph.hpp"

#include <doctest/doctest.h>

#include <chrono>
#include <limits>
#include <string>
#include <vector>

#include "manyworlds/mpmd/job_placement.hpp"
#include "mpmd/graph_units.hpp"
#include "mpmd/graph_words.hpp"

namespace mw = manyworlds;
using namespace std::chrono_literals;

namespace {

using names = std::vector<std::string>;

template <class Enum>
void claim_words_lead_back() {
  for (const auto& each : mw::detail::words_of(Enum())) {
    CHECK(mw::detail::named<Enum>(each.text) == each.value);
    CHECK(mw::detail::word_of(each.value) == each.text);
  }
  CHECK_FALSE(mw::detail::named<Enum>("").has_value());
  CHECK(mw::detail::word_of(static_cast<Enum>(200)) == "?");
}

/// Roles of reinforcement learning, as a trainer and what it drives.
mw::job_graph training_graph() {
  mw::job_graph g("rl");
  g.role("trainer").run({"./rl", "trainer"}).driver().after("actor").after("rollout");
  g.role("actor").run({"./rl", "actor"}).count(4).session();
  g.role("critic").run({"./rl", "critic"}).count(2).controller("trainer");
  g.role("rollout").run({"./rl", "rollout"}).count(2, 4, 8).variable("DEPTH", "3");
  g.role("reference").run({"./rl", "reference"}).in_folder("/tmp");
  g.role("reward").run({"./rl", "reward"}).after("critic").waits_until_ready(1min);
  g.role("rollout").need({.cpus = 2, .memory = 1 << 20, .gpus = 1, .labels = {"fast"}});
  g.role("actor").need({.gpus = 1}).restart(mw::restart_when::always, {5, 2min});
  g.role("actor").per_group = 2;
  g.edge("weights", "actor", "rollout").bulk(mw::group);
  g.edge("scores", "critic", "reward").bulk(mw::pairs).restart_together();
  g.edge("steps", "trainer", "actor").calls();
  g.place({"rollout", "actor"}, mw::place_rule::apart, mw::place_level::gpu);
  return g;
}

}  // namespace

TEST_SUITE_BEGIN("mpmd");

TEST_CASE("graph B1: six roles with counts, groups, needs, variables and rules stand") {
  const mw::job_graph g = training_graph();
  for (const mw::graph_objection& each : g.check()) FAIL_CHECK(each.text());
  REQUIRE(g.roles().size() == 6);
  const mw::graph_role& actor = *g.find_role("actor");
  CHECK(actor.command == names{"./rl", "actor"});
  CHECK(actor.counts == mw::role_count{4, 4, 4});
  CHECK(actor.per_group == 2);
  CHECK(actor.kind == mw::role_kind::spmd);
  CHECK(actor.restarts == mw::restart_when::always);
  CHECK(actor.budget == mw::retry_budget{5, 2min});
  const mw::graph_role& rollout = *g.find_role("rollout");
  CHECK(rollout.counts == mw::role_count{2, 4, 8});
  CHECK(rollout.needs.labels == names{"fast"});
  CHECK(rollout.variables.at("DEPTH") == "3");
  CHECK(g.find_role("reward")->ready == mw::ready_when::told);
  CHECK(g.find_role("reward")->ready_within == 1min);
  CHECK(g.find_role("critic")->controller_role == "trainer");
  CHECK(g.find_role("trainer")->is_driver);
  CHECK(g.find_edge("weights")->shape == mw::edge_shape::group);
  CHECK(g.find_edge("scores")->on_loss == mw::edge_loss::restart_together);
  CHECK(g.find_edge("steps")->kind == mw::edge_kind::calls);
  CHECK(g.places().front().level == mw::place_level::gpu);
  CHECK(g.find_role("judge") == nullptr);
  CHECK(g.find_edge("judge") == nullptr);
}

TEST_CASE("graph B1: it reads back equal from both languages") {
  const mw::job_graph g = training_graph();
  CHECK(mw::job_graph::from_toml(g.to_toml()) == g);
  CHECK(mw::job_graph::from_json(g.to_json()) == g);
}

TEST_CASE("graph B8: a count of zero is legal, and starts nothing") {
  mw::job_graph g("job");
  g.role("a").run({"./a"}).count(0);
  g.role("b").run({"./b"}).count(2).after("a");
  g.edge("e", "a", "b").bulk(mw::pairs);
  CHECK(g.check().empty());
  const auto all = mw::instances_at_start(g);
  REQUIRE(all.size() == 2);
  CHECK(all[0].text() == "b.0");
  CHECK(all[1].text() == "b.1");
}

TEST_CASE(
    "graph B9: roles start behind those that they are after, and else as they stand") {
  mw::job_graph g("job");
  for (const char* name : {"a", "b", "c", "d", "e"}) g.role(name).run({"./x"});
  CHECK(g.start_order() == names{"a", "b", "c", "d", "e"});
  g.role("a").after("d");
  CHECK(g.start_order() == names{"b", "c", "d", "a", "e"});
  g.role("c").after("e");
  CHECK(g.start_order() == names{"b", "d", "a", "e", "c"});
  g.role("d").after("c");
  CHECK(g.start_order() == names{"b", "e", "c", "d", "a"});
}

TEST_CASE("a region is closed over edges of restart_together, and over no others") {
  mw::job_graph g("job");
  for (const char* name : {"a", "b", "c", "d"}) g.role(name).run({"./x"});
  g.role("d").after("a");
  g.edge("one", "c", "a").bulk(mw::pairs).restart_together();
  g.edge("two", "b", "c").bulk(mw::pairs);
  CHECK(g.region_of("a") == names{"a", "c"});
  CHECK(g.region_of("c") == names{"a", "c"});
  CHECK(g.region_of("b") == names{"b"});
  CHECK(g.region_of("d") == names{"d"});
  g.edge("three", "d", "c").calls().restart_together();
  CHECK(g.region_of("a") == names{"a", "c", "d"});
}

TEST_CASE("a role of a name is made once, and an edge of calls has no shape") {
  mw::job_graph g("job");
  g.role("a").run({"./a"});
  CHECK(g.role("a").command == names{"./a"});
  CHECK(g.roles().size() == 1);
  g.role("A");
  CHECK(g.roles().size() == 2);
  CHECK(g.edge("e", "a", "a").bulk(mw::group).calls().shape == mw::edge_shape::pairs);
}

TEST_CASE("each enumerator has a word, and each word leads back") {
  claim_words_lead_back<mw::edge_kind>();
  claim_words_lead_back<mw::edge_shape>();
  claim_words_lead_back<mw::edge_loss>();
  claim_words_lead_back<mw::place_rule>();
  claim_words_lead_back<mw::place_level>();
  claim_words_lead_back<mw::role_kind>();
  claim_words_lead_back<mw::ready_when>();
  claim_words_lead_back<mw::restart_when>();
  CHECK(mw::name_of(mw::edge_kind::calls) == "calls");
  CHECK(mw::name_of(mw::edge_shape::aligned) == "aligned");
  CHECK(mw::name_of(mw::edge_loss::restart_together) == "restart_together");
  CHECK(mw::name_of(mw::place_rule::exclusive) == "exclusive");
  CHECK(mw::name_of(mw::place_level::gpu) == "gpu");
  CHECK(mw::name_of(mw::role_kind::spmd) == "spmd");
  CHECK(mw::name_of(mw::ready_when::told) == "told");
}

TEST_CASE("times are read in whole units, the larger ones first") {
  using mw::detail::parse_duration;
  CHECK(parse_duration("50ms") == 50ms);
  CHECK(parse_duration("1h30m") == 90min);
  CHECK(parse_duration("1m1s1ms1us1ns") == 61'001'001'001ns);
  CHECK(parse_duration("0s") == 0s);
  CHECK(parse_duration("9223372036854775807ns") == mw::duration::max());
  for (const char* wrong : {"", "5", "s", "-1s", "+1s", " 1s", "1s ", "1.5s", "1 s", "1S",
                            "30m1h", "1s1s", "1h30", "9223372036854775808ns", "106752d",
                            "18446744073709551616ns", "106751d24h"}) {
    CAPTURE(wrong);
    CHECK_FALSE(parse_duration(wrong).has_value());
  }
  for (const mw::duration d : {mw::duration(0), mw::duration(1), mw::duration(50ms),
                               mw::duration(90s), mw::duration(24h), mw::duration::max()})
    CHECK(parse_duration(mw::detail::exact_duration_text(d)) == d);
  CHECK(mw::detail::exact_duration_text(90s) == "90s");
  CHECK(mw::detail::exact_duration_text(120s) == "2m");
}

TEST_CASE("sizes are read in binary and decimal units, or as bytes") {
  using mw::detail::parse_size;
  CHECK(parse_size("2GiB") == std::uint64_t{2} << 30);
  CHECK(parse_size("512MiB") == std::uint64_t{512} << 20);
  CHECK(parse_size("1GB") == 1'000'000'000u);
  CHECK(parse_size("7") == 7u);
  CHECK(parse_size("7B") == 7u);
  for (const char* wrong : {"", "GiB", "-1B", "1.5GiB", "1 GiB", "1gib", "1Gi",
                            "18446744073709551616", "16777216TiB"}) {
    CAPTURE(wrong);
    CHECK_FALSE(parse_size(wrong).has_value());
  }
  constexpr auto most = std::numeric_limits<std::uint64_t>::max();
  for (const std::uint64_t n :
       {std::uint64_t{0}, std::uint64_t{1000}, std::uint64_t{1} << 50, most})
    CHECK(parse_size(mw::detail::exact_size_text(n)) == n);
  CHECK(mw::detail::exact_size_text(std::uint64_t{3} << 30) == "3GiB");
}

TEST_SUITE_END();
