// Where instances are placed: what fits, what is pinned, what is short.
#include <time.h>

#include <chrono>

#include "mpmd/placement_bounds.hpp"
#include "placement_fixture.hpp"
#include "support/sanitizers.hpp"

namespace manyworlds::mpmd_tests {

using detail::fewest_nodes;
using detail::least_squares;
using detail::placement_amount;
using detail::placement_bundle;
using detail::placement_load;

namespace {

using uuids = std::vector<std::string>;
using numbers = std::vector<std::uint32_t>;

}  // namespace

TEST_SUITE_BEGIN("mpmd");

TEST_CASE("graph B5: what all nodes together have too little of is told at once") {
  job_graph graph("training");
  add_role(graph, "actor", 4, {.cpus = 1, .gpus = 2});
  const std::vector<node_resources> nodes = {node_of("a", {8}, 64 * gib, {4}),
                                             node_of("b", {8}, 64 * gib, {1})};
  CHECK(why_not(graph, nodes) ==
        "training cannot be placed: short of 3 gpus: 8 needed, 5 there");

  graph.role("actor").need({.cpus = 5, .memory = 40 * gib});
  CHECK(
      why_not(graph, nodes) ==
      "training cannot be placed: short of 4 cpus: 20 needed, 16 there; short of 32 GiB "
      "of memory: 160 GiB needed, 128 GiB there");
  CHECK(has(why_not(graph, {}), "short of 20 cpus: 20 needed, 0 there"));
}

TEST_CASE("graph B5: what others have taken is not there") {
  job_graph graph("training");
  add_role(graph, "actor", 2, {.gpus = 2});
  const std::vector<node_resources> nodes = {node_of("a", {8}, 64 * gib, {3})};
  const auto first =
      place_instances(graph, nodes, std::vector<instance_id>{{"actor", 0}});
  CHECK(why_not(graph, nodes, {{"actor", 1}}, first) ==
        "training cannot be placed: short of 1 gpu: 2 needed, 1 free");
}

TEST_CASE("graph B6: four roles of four, two of them in one bundle") {
  job_graph graph("rl");
  for (const char* role : {"actor", "critic", "rollout", "reward"})
    add_role(graph, role, 4, {.cpus = 1, .gpus = 1});
  graph.place({"actor", "critic"}, place_rule::together);
  std::vector<node_resources> nodes;
  for (const char* name : {"a", "b", "c", "d"})
    nodes.push_back(node_of(name, {4}, 64 * gib, {4}));
  const std::vector<instance_place> places = place_all(graph, nodes);
  CHECK(places.size() == 16);
  CHECK(broken(graph, nodes, places) == "");
  for (const char* index : {"0", "1", "2", "3"}) {
    const instance_place& actor = place_of(places, std::string("actor.") + index);
    CHECK(actor.node == place_of(places, std::string("critic.") + index).node);
    CHECK(has(actor.why, std::string("together with critic.") + index));
  }
}

TEST_CASE("graph B6: a group of one role is a bundle, and is joined to what it is with") {
  job_graph graph("rl");
  add_role(graph, "trainer", 4, {.gpus = 1}).per_group = 2;
  add_role(graph, "cache", 4, {.memory = gib});
  graph.place({"trainer", "cache"}, place_rule::together);
  // With each index alone there would be room: 1 and 1 and 2.
  const std::vector<node_resources> small = {node_of("a", {4}, 64 * gib, {1}),
                                             node_of("b", {4}, 64 * gib, {1}),
                                             node_of("c", {4}, 64 * gib, {2})};
  CHECK(
      why_not(graph, small) ==
      "trainer.2, trainer.3, cache.2, cache.3 cannot be placed on one node: they need 2 "
      "gpus and 2 GiB; a, b: 1 gpu free; c: 0 gpus free");
  const std::vector<node_resources> nodes = {node_of("a", {4}, 64 * gib, {3}),
                                             node_of("b", {4}, 64 * gib, {2})};
  const std::vector<instance_place> places = place_all(graph, nodes);
  CHECK(broken(graph, nodes, places) == "");
  CHECK(place_of(places, "cache.0").node == place_of(places, "cache.1").node);
}

TEST_CASE("graph B8: a role without instances needs no node") {
  job_graph graph("serving");
  add_role(graph, "decode", 1);
  graph.role("spare").run({"./spare"}).count(0, 0, 4);
  graph.place({"decode", "spare"}, place_rule::apart);
  const std::vector<node_resources> one = {node_of("a", {1})};
  CHECK(nodes_text(place_all(graph, one)) == "decode.0 a");
  CHECK(place_instances(graph, {}, {}).empty());
}

TEST_CASE("an instance goes where the least stays free") {
  job_graph graph("g");
  add_role(graph, "small", 1, {.cpus = 2});
  const std::vector<node_resources> nodes = {node_of("big", {8}), node_of("fits", {3}),
                                             node_of("tiny", {1})};
  const std::vector<instance_place> places = place_all(graph, nodes);
  CHECK(nodes_text(places) == "small.0 fits");
  CHECK(places[0].why == "best fit");
}

TEST_CASE("what needs no GPU leaves those that are there to others") {
  job_graph graph("g");
  add_role(graph, "reader", 2, {.cpus = 2});
  add_role(graph, "trainer", 1, {.cpus = 4, .gpus = 1});
  const std::vector<node_resources> nodes = {node_of("gpu", {4}, 64 * gib, {1}),
                                             node_of("cpu", {8})};
  CHECK(nodes_text(place_all(graph, nodes)) ==
        "reader.0 cpu, reader.1 cpu, trainer.0 gpu");
}

TEST_CASE("the largest is placed first, whatever comes first") {
  job_graph graph("g");
  add_role(graph, "small", 3, {.cpus = 2});
  add_role(graph, "large", 1, {.cpus = 6});
  const std::vector<node_resources> nodes = {node_of("a", {6}), node_of("b", {6})};
  const std::vector<instance_place> places = place_all(graph, nodes);
  CHECK(nodes_text(places) == "small.0 b, small.1 b, small.2 b, large.0 a");
}

TEST_CASE("a choice that was best at first is taken back where another fits no longer") {
  job_graph graph("g");
  // Best fit puts the largest on `a`, where alone the memory for two of the others is.
  add_role(graph, "large", 1, {.cpus = 5});
  add_role(graph, "half", 2, {.cpus = 3, .memory = 30 * gib});
  const std::vector<node_resources> nodes = {node_of("a", {6}, 60 * gib),
                                             node_of("b", {7}, 59 * gib)};
  CHECK(why_not(graph, nodes) == "");
  CHECK(nodes_text(place_all(graph, nodes)) == "large.0 b, half.0 a, half.1 a");
}

TEST_CASE("what has no CPUs of its own goes where the fewest share them") {
  job_graph graph("g");
  add_role(graph, "worker", 6);
  const std::vector<node_resources> nodes = {node_of("a", {2}), node_of("b", {4})};
  const std::vector<instance_place> places = place_all(graph, nodes);
  CHECK(counts_of(places, {"worker"}) ==
        std::map<std::string, std::uint64_t>{{"a", 2}, {"b", 4}});
  for (const instance_place& each : places) CHECK(each.cpus.empty());
}

TEST_CASE("those that stand share CPUs too") {
  job_graph graph("g");
  add_role(graph, "worker", 4);
  const std::vector<node_resources> nodes = {node_of("a", {2}), node_of("b", {2})};
  std::vector<instance_place> standing;
  for (std::uint32_t i = 0; i < 2; ++i)
    standing.push_back({{"worker", i}, "a", {}, {}, 0, "it was there"});
  const std::vector<instance_id> rest = {{"worker", 2}, {"worker", 3}};
  CHECK(nodes_text(place_instances(graph, nodes, rest, standing)) ==
        "worker.2 b, worker.3 b");
}

TEST_CASE("CPUs are of one NUMA node where they can be") {
  job_graph graph("g");
  add_role(graph, "two", 1, {.cpus = 2});
  add_role(graph, "three", 1, {.cpus = 3});
  const std::vector<node_resources> nodes = {node_of("a", {3, 3})};
  const std::vector<instance_place> places = place_all(graph, nodes);
  CHECK(place_of(places, "three.0").cpus == numbers{0, 1, 2});
  CHECK(place_of(places, "two.0").cpus == numbers{3, 4});

  job_graph wide("g");
  add_role(wide, "five", 1, {.cpus = 5});
  CHECK(place_all(wide, nodes)[0].cpus == numbers{0, 1, 2, 3, 4});
}

TEST_CASE("CPUs are those near the GPU") {
  job_graph graph("g");
  add_role(graph, "reader", 1, {.cpus = 3});
  add_role(graph, "trainer", 2, {.cpus = 2, .gpus = 1});
  const std::vector<node_resources> nodes = {node_of("a", {4, 4}, 64 * gib, {0, 2})};
  const std::vector<instance_place> places = place_all(graph, nodes);
  CHECK(broken(graph, nodes, places) == "");
  CHECK(place_of(places, "trainer.0").cpus == numbers{4, 5});
  CHECK(place_of(places, "trainer.1").cpus == numbers{6, 7});
  CHECK(place_of(places, "reader.0").cpus == numbers{0, 1, 2});
}

TEST_CASE("a GPU is taken where the CPUs for it are") {
  job_graph graph("g");
  add_role(graph, "trainer", 1, {.cpus = 3, .gpus = 1});
  const std::vector<node_resources> nodes = {node_of("a", {2, 4}, 64 * gib, {2, 2})};
  const std::vector<instance_place> places = place_all(graph, nodes);
  CHECK(places[0].gpus == uuids{"a-gpu2"});
  CHECK(places[0].cpus == numbers{2, 3, 4});
}

TEST_CASE("the GPUs of an instance are near each other") {
  job_graph graph("g");
  add_role(graph, "one", 1, {.gpus = 1});
  add_role(graph, "two", 1, {.gpus = 2});
  const std::vector<node_resources> nodes = {node_of("a", {4, 4}, 64 * gib, {1, 2})};
  const std::vector<instance_place> places = place_all(graph, nodes);
  CHECK(place_of(places, "two.0").gpus == uuids{"a-gpu1", "a-gpu2"});
  CHECK(place_of(places, "one.0").gpus == uuids{"a-gpu0"});
}

TEST_CASE("what stands stays, and what it has is not given again") {
  job_graph graph("g");
  add_role(graph, "trainer", 3, {.cpus = 2, .memory = 10 * gib, .gpus = 1});
  const std::vector<node_resources> nodes = {node_of("a", {4}, 20 * gib, {2}),
                                             node_of("b", {4}, 20 * gib, {2})};
  const std::vector<instance_id> first = {{"trainer", 0}};
  const std::vector<instance_id> rest = {{"trainer", 2}, {"trainer", 1}};
  const auto standing = place_instances(graph, nodes, first);
  CHECK(nodes_text(standing) == "trainer.0 a");
  const auto placed = place_instances(graph, nodes, rest, standing);
  CHECK(placement_checker(graph, nodes).broken(rest, standing, placed) == "");
  CHECK(nodes_text(placed) == "trainer.2 a, trainer.1 b");
}

TEST_CASE("what stands on a node that is gone takes nothing of the others") {
  job_graph graph("g");
  add_role(graph, "trainer", 2, {.cpus = 4});
  const std::vector<node_resources> nodes = {node_of("a", {4})};
  const std::vector<instance_place> standing = {
      {{"trainer", 0}, "gone", {0, 1, 2, 3}, {}, 0, "it was there"}};
  CHECK(nodes_text(place_instances(graph, nodes, std::vector<instance_id>{{"trainer", 1}},
                                   standing)) == "trainer.1 a");
}

TEST_CASE("labels are needed of the node, and those that ask for some choose first") {
  job_graph graph("g");
  add_role(graph, "any", 2, {.cpus = 2});
  add_role(graph, "fast", 1, {.cpus = 2, .labels = {"ssd", "net"}});
  const std::vector<node_resources> nodes = {
      node_of("a", {2}, gib, {}, {"net", "ssd", "x"}),
      node_of("b", {4}, gib, {}, {"ssd"})};
  CHECK(nodes_text(place_all(graph, nodes)) == "any.0 b, any.1 b, fast.0 a");
  const std::vector<node_resources> without = {node_of("b", {9}, gib, {}, {"ssd"}),
                                               node_of("c", {9}, gib)};
  CHECK(why_not(graph, without) ==
        "fast.0 cannot be placed: needs 2 cpus; b: no label net; c: no label ssd, net");
}

TEST_CASE("what fits no node is told with what each has free") {
  job_graph graph("g");
  add_role(graph, "wide", 2, {.cpus = 3, .gpus = 2});
  const std::vector<node_resources> nodes = {node_of("a", {8}, gib, {3}),
                                             node_of("b", {8}, gib, {1}),
                                             node_of("c", {2}, gib, {1})};
  CHECK(why_not(graph, nodes) ==
        "wide.1 cannot be placed: needs 2 gpus and 3 cpus; a, b: 1 gpu free; c: 1 gpu "
        "and 2 "
        "cpus free");
}

TEST_CASE("of what cannot be placed the one that was reached last is told") {
  job_graph graph("g");
  add_role(graph, "large", 1, {.cpus = 12});
  add_role(graph, "medium", 1, {.cpus = 10, .memory = gib});
  add_role(graph, "small", 1, {.cpus = 9});
  // With the large one on `a` the small one is left over; with it on `b` the medium one
  // is.
  const std::vector<node_resources> nodes = {node_of("a", {20}, 0),
                                             node_of("b", {17}, gib)};
  CHECK(why_not(graph, nodes) ==
        "small.0 cannot be placed: needs 9 cpus; a: 8 cpus free; b: 7 cpus free");
}

TEST_CASE("what no placement is better than") {
  const std::vector<placement_amount> free = {{3, 4, 0}, {3, 4, 1}, {3, 9, 0}};
  const auto fewest = [&](const placement_amount& each, std::uint64_t bundles) {
    placement_load load;
    placement_bundle one;
    one.need = each;
    for (std::uint64_t i = 0; i < bundles; ++i) load.add(one);
    return fewest_nodes(load, free);
  };
  CHECK(fewest({1, 0, 0}, 3) == 1);
  CHECK(fewest({1, 0, 0}, 4) == 2);
  // Two of them fit on no node, though two nodes have CPUs enough for three.
  CHECK(fewest({2, 0, 0}, 3) == 3);
  CHECK(fewest({0, 3, 0}, 3) == 1);
  CHECK(fewest({0, 0, 1}, 2) == 4);
  CHECK(fewest({}, 5) == 1);

  CHECK(least_squares({0, 0, 0}, {9, 9, 9}, 4) == 4 + 1 + 1);
  CHECK(least_squares({0, 0, 0}, {1, 9, 0}, 4) == 1 + 9);
  CHECK(least_squares({2, 0}, {9, 9}, 2) == 4 + 4);
}

TEST_CASE("more bundles than all nodes have room for are refused without a search") {
  // No two nodes are alike, so that a search would try them in all ways.
  std::vector<node_resources> nodes;
  for (std::uint32_t i = 0; i < 60; ++i)
    nodes.push_back(node_of("n" + std::to_string(i), {9}, (64 + i) * gib, {},
                            {i % 2 == 0 ? "even" : "odd"}));
  const auto why = [&](std::uint32_t count, std::vector<std::string> labels,
                       std::uint32_t small) {
    job_graph graph("g");
    role_needs needs{.cpus = 5, .memory = gib};
    needs.labels = std::move(labels);
    add_role(graph, "wide", count, std::move(needs));
    add_role(graph, "small", small, {.cpus = 1, .memory = gib});
    return why_not(graph, nodes);
  };
  const auto is_refused = [](const std::string& text) {
    return has(text, "cannot be placed: needs 5 cpus and 1 GiB; ") &&
           !has(text, "given up");
  };
  CHECK(why(60, {}, 1) == "");
  CHECK(is_refused(why(61, {}, 0)));
  CHECK(is_refused(why(61, {}, 1)));
  CHECK(why(30, {"odd"}, 1) == "");
  CHECK(is_refused(why(31, {"odd"}, 1)));
}

TEST_CASE("machines with a few MiB more or less are alike where none needs so little") {
  job_graph graph("g");
  add_role(graph, "wide", 20, {.cpus = 5, .memory = gib});
  add_role(graph, "small", 21, {.cpus = 3, .memory = 3 * gib});
  const auto why = [&](std::uint64_t step) {
    std::vector<node_resources> nodes;
    for (std::uint64_t i = 0; i < 20; ++i)
      nodes.push_back(node_of("n" + std::to_string(i), {9}, 64 * gib + i * step));
    return why_not(graph, nodes);
  };
  CHECK(has(why(gib), "given up"));
  const std::string alike = why(std::uint64_t{1} << 20);
  CHECK(has(alike, "cannot be placed: needs 3 cpus"));
  CHECK_FALSE(has(alike, "given up"));
}

TEST_CASE("a search among 1,000 nodes is given up in time") {
  job_graph graph("g");
  for (int i = 0; i < 4; ++i) {
    add_role(graph, "wide" + std::to_string(i), 250, {.cpus = 5, .memory = gib});
    add_role(graph, "near" + std::to_string(i), 1);
    graph.place({"wide" + std::to_string(i), "near" + std::to_string(i)},
                place_rule::apart);
  }
  add_role(graph, "small", 1001, {.cpus = 3, .memory = gib});
  std::vector<node_resources> nodes;
  for (std::uint32_t i = 0; i < 1000; ++i)
    nodes.push_back(node_of("n" + std::to_string(i), {9}, (64 + i) * gib));
  // Of this thread, whatever its neighbours do.
  const auto used = [] {
    timespec now{};
    ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return std::chrono::seconds(now.tv_sec) + std::chrono::nanoseconds(now.tv_nsec);
  };
  const auto before = used();
  CHECK(has(why_not(graph, nodes), "given up"));
  // Six times the goal. Sanitized and not optimized it takes sixteen times as long.
  const bool is_sanitized = manyworlds::testing::has_address_sanitizer ||
                            manyworlds::testing::has_thread_sanitizer;
  CHECK((is_sanitized || used() - before < std::chrono::seconds(3)));
}

TEST_CASE("of many nodes some are named, and the others counted") {
  job_graph graph("g");
  add_role(graph, "wide", 1, {.cpus = 3});
  std::vector<node_resources> nodes;
  for (int i = 0; i < 20; ++i) nodes.push_back(node_of("n" + std::to_string(i), {2}));
  CHECK(has(why_not(graph, nodes),
            "; n0, n1, n2, n3, n4, n5, n6, n7 and 12 more: 2 cpus free"));
}

TEST_CASE("what contradicts itself is refused") {
  job_graph graph("g");
  add_role(graph, "a", 2);
  const std::vector<node_resources> one = {node_of("n", {2})};
  const std::vector<node_resources> twins = {node_of("n", {2}), node_of("n", {2})};
  CHECK(why_not(graph, twins) == "two nodes are called n");
  CHECK(why_not(graph, one, {{"b", 0}}) ==
        "b.0 cannot be placed: the graph has no such role");
  CHECK(why_not(graph, one, {{"a", 0}, {"a", 0}}) == "a.0 is wanted twice");
  CHECK(why_not(graph, one, {{"a", 0}}, place_all(graph, one)) ==
        "a.0 cannot be placed: it stands on n already");
  CHECK(why_not(graph, {}) == "a.0 cannot be placed; there is no node");
}

TEST_CASE("amounts of any size do no harm") {
  job_graph graph("g");
  add_role(graph, "a", 3, {.cpus = UINT32_MAX, .memory = UINT64_MAX, .gpus = UINT32_MAX});
  const std::vector<node_resources> nodes = {node_of("n", {2}, UINT64_MAX)};
  CHECK(has(why_not(graph, nodes), "12884901885 gpus: 12884901885 needed, 0 there"));
  job_graph memory("g");
  add_role(memory, "a", 2, {.memory = UINT64_MAX});
  CHECK(has(why_not(memory, nodes), "a.1 cannot be placed: needs"));
}

TEST_CASE("a graph of 1,000 instances is placed on 100 nodes, the same way each time") {
  job_graph graph("large");
  add_role(graph, "router", 4, {.cpus = 2}).per_group = 2;
  add_role(graph, "prefill", 200, {.cpus = 4, .memory = 8 * gib, .gpus = 1});
  add_role(graph, "decode", 396, {.cpus = 2, .memory = 4 * gib, .gpus = 1});
  add_role(graph, "cache", 200, {.memory = 2 * gib});
  add_role(graph, "reader", 200, {.cpus = 1});
  graph.place({"prefill", "cache"}, place_rule::together);
  graph.place({"prefill", "decode"}, place_rule::apart);
  graph.place({"router"}, place_rule::exclusive);
  graph.place({"reader"}, place_rule::spread);
  std::vector<node_resources> nodes;
  for (int i = 0; i < 100; ++i)
    nodes.push_back(node_of("n" + std::to_string(i), {16, 16}, 256 * gib, {4, 4}));
  const auto began = std::chrono::steady_clock::now();
  const std::vector<instance_place> places = place_all(graph, nodes);
  const auto took = std::chrono::steady_clock::now() - began;
  // Fifty times the goal, for sanitizers and neighbours.
  CHECK(took < std::chrono::milliseconds(2500));
  CHECK(broken(graph, nodes, places) == "");
  CHECK(place_all(graph, nodes) == places);
}

TEST_SUITE_END();

}  // namespace manyworlds::mpmd_tests
