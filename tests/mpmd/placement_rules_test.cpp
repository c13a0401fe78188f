// The rules of placement: each alone, every two of them, and which are in conflict.
#include <tuple>

#include "placement_fixture.hpp"

namespace manyworlds::mpmd_tests {

namespace {

using counts = std::map<std::string, std::uint64_t>;

std::vector<node_resources> equal_nodes(std::uint32_t number, std::uint32_t cpus = 8,
                                        std::uint32_t gpus = 6) {
  std::vector<node_resources> nodes;
  for (std::uint32_t i = 0; i < number; ++i)
    nodes.push_back(
        node_of(std::string(1, static_cast<char>('a' + i)), {cpus}, 64 * gib, {gpus}));
  return nodes;
}

/// Roles a, b and c with two instances each, of one CPU and one GPU.
job_graph three_roles() {
  job_graph graph("g");
  for (const char* name : {"a", "b", "c"})
    add_role(graph, name, 2, {.cpus = 1, .gpus = 1});
  return graph;
}

/// Checks that a graph is placed on so few nodes, that all holds there, and that with one
/// node less it is refused with all those texts. Returns the placement.
std::vector<instance_place> placed_on_just(std::uint32_t nodes, const job_graph& graph,
                                           const std::vector<std::string>& blamed) {
  const std::vector<node_resources> enough = equal_nodes(nodes);
  REQUIRE(why_not(graph, enough) == "");
  const std::vector<instance_place> places = place_all(graph, enough);
  CHECK(broken(graph, enough, places) == "");
  if (nodes > 1) {
    const std::string why = why_not(graph, equal_nodes(nodes - 1));
    CAPTURE(why);
    for (const std::string& each : blamed) CHECK(has(why, each));
  }
  return places;
}

}  // namespace

TEST_SUITE_BEGIN("mpmd");

TEST_CASE("graph B7: together alone, on nodes and on GPUs") {
  job_graph graph = three_roles();
  graph.place({"a", "b"}, place_rule::together);
  std::vector<instance_place> places = placed_on_just(1, graph, {});
  CHECK(place_of(places, "a.1").node == place_of(places, "b.1").node);
  CHECK(place_of(places, "a.1").gpus != place_of(places, "b.1").gpus);

  graph.place({"b", "c"}, place_rule::together, place_level::gpu);
  places = placed_on_just(1, graph, {});
  CHECK(place_of(places, "b.1").gpus == place_of(places, "c.1").gpus);
  CHECK(place_of(places, "b.0").gpus != place_of(places, "b.1").gpus);
  CHECK(place_of(places, "b.0").cpus != place_of(places, "c.0").cpus);
}

TEST_CASE(
    "graph B7: what is together and too large for each node is refused by the rule") {
  job_graph graph = three_roles();
  graph.place({"a", "b"}, place_rule::together);
  const std::vector<node_resources> small = equal_nodes(6, 1, 1);
  CHECK(why_not(graph, small) ==
        "a.0, b.0 cannot be placed on one node: they need 2 gpus and 2 cpus; a, b, c, d, "
        "e, "
        "f: 1 gpu and 1 cpu free; by the rule: together [a, b]");
}

TEST_CASE("graph B7: apart alone") {
  job_graph graph = three_roles();
  graph.place({"a", "b", "c"}, place_rule::apart);
  const auto places = placed_on_just(
      3, graph,
      {"g cannot be placed: apart [a, b, c] needs 3 nodes (a 1, b 1, c 1), 2 have "
       "room; by the rule: apart [a, b, c]"});
  CHECK(counts_of(places, {"a"}).size() == 1);
  CHECK(place_of(places, "c.0").why == "apart [a, b, c]; the only node that fits");
}

TEST_CASE("graph B7: apart on GPUs is what GPUs are without a rule") {
  job_graph graph = three_roles();
  graph.place({"a", "b", "c"}, place_rule::apart, place_level::gpu);
  graph.place({"a"}, place_rule::exclusive, place_level::gpu);
  placed_on_just(1, graph, {});
}

TEST_CASE("graph B7: exclusive alone") {
  job_graph graph = three_roles();
  graph.place({"a"}, place_rule::exclusive);
  const auto places = placed_on_just(
      2, graph, {"exclusive [a] needs 2 nodes (a 1, other roles 1), 1 has room"});
  CHECK(counts_of(places, {"a"}).size() == 1);
  CHECK(counts_of(places, {"b", "c"}).size() == 1);
}

TEST_CASE("graph B7: pack alone takes as few nodes as can be") {
  job_graph graph("g");
  add_role(graph, "a", 4, {.cpus = 2});
  add_role(graph, "b", 2, {.cpus = 1});
  graph.place({"a"}, place_rule::pack);
  // Best fit alone would begin with the node of 2.
  const std::vector<node_resources> nodes = {node_of("s", {2}), node_of("m", {6}),
                                             node_of("l", {9})};
  const auto places = place_all(graph, nodes);
  CHECK(counts_of(places, {"a"}) == counts{{"l", 4}});
  CHECK(place_of(places, "a.0").why == "pack [a], most fits there");
  CHECK(place_of(places, "a.1").why == "pack [a], begun there");
  CHECK(broken(graph, nodes, places) == "");
}

TEST_CASE("graph B7: pack looks further than one step where that saves a node") {
  job_graph graph("g");
  add_role(graph, "a", 2, {.cpus = 2});
  add_role(graph, "b", 2, {.cpus = 3});
  graph.place({"a", "b"}, place_rule::pack);
  // Both of 3 where most fits, and then 2 and 2 on one each: it takes 2 and 3 on each.
  const std::vector<node_resources> nodes = {node_of("x", {7}), node_of("y", {5}),
                                             node_of("z", {3})};
  const auto places = place_all(graph, nodes);
  CHECK(counts_of(places, {"a", "b"}).size() == 2);
}

TEST_CASE("graph B7: spread alone") {
  job_graph graph("g");
  add_role(graph, "a", 6, {.cpus = 1});
  graph.place({"a"}, place_rule::spread);
  const auto places = place_all(graph, equal_nodes(4));
  for (const auto& [node, count] : counts_of(places, {"a"})) {
    CHECK(count >= 1);
    CHECK(count <= 2);
  }
  CHECK(counts_of(places, {"a"}).size() == 4);
  CHECK(place_of(places, "a.3").why == "spread [a], fewest there");
  CHECK(place_of(places, "a.4").why == "the first of equal nodes");
  // Where one node takes fewer, the others share what is left.
  std::vector<node_resources> uneven = equal_nodes(3);
  uneven[1] = node_of("b", {1});
  add_role(graph, "a", 7, {.cpus = 1});
  CHECK(counts_of(place_all(graph, uneven), {"a"}) ==
        counts{{"a", 3}, {"b", 1}, {"c", 3}});
}

TEST_CASE("graph B7: spread counts what stands") {
  job_graph graph("g");
  add_role(graph, "a", 4, {.cpus = 1});
  graph.place({"a"}, place_rule::spread);
  const std::vector<node_resources> nodes = equal_nodes(2);
  const std::vector<instance_place> standing = {{{"a", 0}, "a", {0}, {}, 0, "x"},
                                                {{"a", 1}, "a", {1}, {}, 0, "x"}};
  const std::vector<instance_id> rest = {{"a", 2}, {"a", 3}};
  CHECK(nodes_text(place_instances(graph, nodes, rest, standing)) == "a.2 b, a.3 b");
}

TEST_CASE("graph B7: together and apart") {
  job_graph graph = three_roles();
  graph.place({"a", "b"}, place_rule::together);
  graph.place({"a", "c"}, place_rule::apart);
  placed_on_just(2, graph, {"by the rule: apart [a, c]"});

  job_graph close = three_roles();
  close.place({"a", "b"}, place_rule::together, place_level::gpu);
  close.place({"a", "b"}, place_rule::apart);
  CHECK(why_not(close, equal_nodes(4)) ==
        "rules in conflict: together [a, b] at gpu and apart [a, b]: a.0 and b.0 would "
        "have "
        "to share a node, and may not");

  job_graph apart = three_roles();
  apart.place({"a", "b"}, place_rule::together);
  apart.place({"a", "b"}, place_rule::apart, place_level::gpu);
  placed_on_just(1, apart, {});

  job_graph both = three_roles();
  both.place({"a", "b"}, place_rule::together, place_level::gpu);
  both.place({"a", "b"}, place_rule::apart, place_level::gpu);
  CHECK(why_not(both, equal_nodes(4)) ==
        "rules in conflict: together [a, b] at gpu and apart [a, b] at gpu: a.0 and b.0 "
        "would have to share a gpu, and may not");
}

TEST_CASE("graph B7: together by two rules, and apart by a third") {
  job_graph graph = three_roles();
  graph.place({"a", "b"}, place_rule::together);
  graph.place({"b", "c"}, place_rule::together);
  graph.place({"a", "c"}, place_rule::apart);
  CHECK(
      why_not(graph, equal_nodes(4)) ==
      "rules in conflict: together [a, b], together [b, c] and apart [a, c]: a.0 and c.0 "
      "would have to share a node, and may not");
}

TEST_CASE("graph B7: together and exclusive") {
  job_graph graph = three_roles();
  graph.place({"a", "b"}, place_rule::together);
  graph.place({"a", "b"}, place_rule::exclusive);
  placed_on_just(2, graph, {});

  job_graph alone = three_roles();
  alone.place({"a", "b"}, place_rule::together);
  alone.place({"a"}, place_rule::exclusive);
  CHECK(why_not(alone, equal_nodes(4)) ==
        "rules in conflict: together [a, b] and exclusive [a]: a.0 and b.0 would have to "
        "share a node, and may not");

  job_graph gpu = three_roles();
  gpu.place({"a", "b"}, place_rule::together, place_level::gpu);
  gpu.place({"a"}, place_rule::exclusive, place_level::gpu);
  CHECK(has(why_not(gpu, equal_nodes(4)),
            "together [a, b] at gpu and exclusive [a] at gpu: a.0 and b.0 would have to "
            "share a gpu"));
}

TEST_CASE("graph B7: together, too large where nothing else may be") {
  // Each rule alone can hold: together on `x`, or exclusive there.
  job_graph graph("g");
  add_role(graph, "a", 1, {.gpus = 1});
  add_role(graph, "b", 1, {.gpus = 1});
  add_role(graph, "c", 1, {.gpus = 2});
  graph.place({"a", "b"}, place_rule::together);
  graph.place({"c"}, place_rule::exclusive);
  const std::vector<node_resources> nodes = {node_of("x", {4}, gib, {4}),
                                             node_of("y", {4}, gib, {1}),
                                             node_of("z", {4}, gib, {1})};
  const std::string why = why_not(graph, nodes);
  CAPTURE(why);
  CHECK(has(why, "rules in conflict: together [a, b] and exclusive [c]"));
}

TEST_CASE("graph B7: together and pack, together and spread") {
  job_graph packed = three_roles();
  packed.place({"a", "b"}, place_rule::together);
  packed.place({"a", "b"}, place_rule::pack);
  CHECK(counts_of(placed_on_just(1, packed, {}), {"a", "b"}).size() == 1);

  job_graph spread = three_roles();
  spread.place({"a", "b"}, place_rule::together);
  spread.place({"a", "b"}, place_rule::spread);
  const auto places = place_all(spread, equal_nodes(3));
  CHECK(broken(spread, equal_nodes(3), places) == "");
  CHECK(counts_of(places, {"a", "b"}).size() == 2);
}

TEST_CASE("graph B7: apart and exclusive") {
  job_graph graph = three_roles();
  graph.place({"b", "c"}, place_rule::apart);
  graph.place({"a"}, place_rule::exclusive);
  placed_on_just(3, graph,
                 {"rules in conflict: apart [b, c] and exclusive [a]",
                  "cannot be placed: needs 1 gpu and 1 cpu"});
}

TEST_CASE("graph B7: apart twice") {
  job_graph graph("g");
  for (const char* name : {"a", "b", "c"}) add_role(graph, name, 1, {.cpus = 1});
  graph.place({"a", "b"}, place_rule::apart);
  graph.place({"b", "c"}, place_rule::apart);
  const auto places = placed_on_just(2, graph, {});
  CHECK(place_of(places, "a.0").node == place_of(places, "c.0").node);
  graph.place({"a", "c"}, place_rule::apart);
  placed_on_just(3, graph,
                 {"rules in conflict: apart [a, b] and apart [b, c] and apart [a, c]"});
}

TEST_CASE("graph B7: exclusive twice") {
  job_graph graph = three_roles();
  graph.place({"a"}, place_rule::exclusive);
  graph.place({"b"}, place_rule::exclusive);
  placed_on_just(3, graph, {"rules in conflict: exclusive [a] and exclusive [b]"});
}

TEST_CASE("graph B7: apart and pack, apart and spread") {
  job_graph packed = three_roles();
  packed.place({"a", "b"}, place_rule::apart);
  packed.place({"a", "b"}, place_rule::pack);
  const std::vector<node_resources> nodes = equal_nodes(6);
  CHECK(counts_of(place_all(packed, nodes), {"a", "b"}).size() == 2);

  job_graph spread = three_roles();
  spread.place({"a", "b"}, place_rule::apart);
  spread.place({"a", "b"}, place_rule::spread);
  CHECK(counts_of(place_all(spread, nodes), {"a", "b"}).size() == 4);
  CHECK(counts_of(place_all(spread, equal_nodes(3)), {"a", "b"}).size() == 3);
}

TEST_CASE("graph B7: exclusive and pack, exclusive and spread") {
  job_graph packed = three_roles();
  packed.place({"a"}, place_rule::exclusive);
  packed.place({"a", "b", "c"}, place_rule::pack);
  CHECK(counts_of(place_all(packed, equal_nodes(6)), {"a", "b", "c"}).size() == 2);

  job_graph spread = three_roles();
  spread.place({"a"}, place_rule::exclusive);
  spread.place({"a"}, place_rule::spread);
  const auto places = place_all(spread, equal_nodes(3));
  CHECK(broken(spread, equal_nodes(3), places) == "");
  CHECK(counts_of(places, {"a"}).size() == 2);
}

TEST_CASE("graph B7: pack and spread of the same instances") {
  job_graph graph = three_roles();
  graph.place({"a", "b"}, place_rule::pack);
  graph.place({"b", "c"}, place_rule::spread);
  CHECK(why_not(graph, equal_nodes(4)) ==
        "rules in conflict: pack [a, b] and spread [b, c]: the same instances cannot be "
        "both");
  // One alone is packed and spread.
  graph.role("b").count(1);
  CHECK(why_not(graph, equal_nodes(4)) == "");
}

TEST_CASE("graph B7: pack of some and spread of others") {
  job_graph graph = three_roles();
  graph.place({"a", "b"}, place_rule::pack);
  graph.place({"c"}, place_rule::spread);
  const auto places = place_all(graph, equal_nodes(4));
  CHECK(counts_of(places, {"a", "b"}).size() == 1);
  CHECK(counts_of(places, {"c"}).size() == 2);
}

TEST_CASE("what stands is apart from what comes, and keeps its node to itself") {
  job_graph graph = three_roles();
  graph.place({"a", "b"}, place_rule::apart);
  const std::vector<node_resources> nodes = equal_nodes(2, 8, 8);
  const std::vector<instance_place> standing = {{{"a", 0}, "b", {0}, {"b-gpu0"}, 0, "x"}};
  const std::vector<instance_id> rest = {{"a", 1}, {"b", 0}, {"b", 1}};
  const auto places = place_instances(graph, nodes, rest, standing);
  CHECK(nodes_text(places) == "a.1 b, b.0 a, b.1 a");
  CHECK(placement_checker(graph, nodes).broken(rest, standing, places) == "");

  const std::vector<node_resources> tight = {node_of("a", {8}, gib, {1}),
                                             node_of("b", {8}, gib, {8})};
  CHECK(
      why_not(graph, tight, rest, standing) ==
      "b.1 cannot be placed: needs 1 gpu and 1 cpu; a: 0 gpus free; b: apart from a (a.0 "
      "is there); by the rule: apart [a, b]");
}

TEST_CASE("nodes with as much free are not alike where others stand on them") {
  job_graph graph("g");
  for (const char* name : {"a", "b", "c", "d"}) add_role(graph, name, 1);
  graph.place({"a", "b"}, place_rule::apart);
  graph.place({"b", "d"}, place_rule::apart);
  graph.place({"c", "d"}, place_rule::apart);
  // c begins on `a`, which is where d has to be.
  CHECK(nodes_text(place_all(graph, equal_nodes(2))) == "a.0 a, b.0 b, c.0 b, d.0 a");
}

TEST_CASE("nodes with as much free are not alike where their labels differ") {
  job_graph graph("g");
  add_role(graph, "u", 1, {.cpus = 1, .labels = {"p"}});
  add_role(graph, "v", 1, {.cpus = 1, .labels = {"q"}});
  add_role(graph, "w", 1, {.cpus = 1, .labels = {"q"}});
  const std::vector<node_resources> nodes = {node_of("both", {1}, gib, {}, {"p", "q"}),
                                             node_of("one", {1}, gib, {}, {"p"}),
                                             node_of("other", {1}, gib, {}, {"q"})};
  const auto places = place_all(graph, nodes);
  CHECK(nodes_text(places) == "u.0 one, v.0 both, w.0 other");
  CHECK(place_of(places, "u.0").why == "others that fit led nowhere");
  CHECK(place_of(places, "w.0").why == "the only node that fits");
}

TEST_CASE("a node that a rule alone has left is there by the rule") {
  job_graph graph("g");
  add_role(graph, "wide", 1, {.cpus = 4});
  add_role(graph, "a", 2, {.cpus = 3});
  graph.place({"wide", "a"}, place_rule::pack);
  const std::vector<node_resources> nodes = {node_of("six", {6}), node_of("four", {4}),
                                             node_of("three", {3})};
  const auto places = place_all(graph, nodes);
  CHECK(nodes_text(places) == "wide.0 four, a.0 six, a.1 six");
  CHECK(place_of(places, "wide.0").why == "others that fit led nowhere");
  CHECK(place_of(places, "a.1").why == "pack [wide, a], holds best there");
}

TEST_CASE("nodes on which one rule is in the way stand together in an error") {
  job_graph graph("g");
  add_role(graph, "a", 3, {.cpus = 5});
  add_role(graph, "b", 1, {.cpus = 1});
  graph.place({"a", "b"}, place_rule::apart);
  const std::vector<node_resources> nodes = equal_nodes(3);
  std::vector<instance_place> standing;
  for (std::uint32_t i = 0; i < 3; ++i)
    standing.push_back({{"a", i}, nodes[i].name, {0, 1, 2, 3, 4}, {}, 0, "x"});
  CHECK(why_not(graph, nodes, {{"b", 0}}, standing) ==
        "b.0 cannot be placed: needs 1 cpu; a, b, c: apart from a (a.0 and others are "
        "there); by the rule: apart [a, b]");
}

TEST_CASE("where two stand that are apart by now, neither of them gets company") {
  job_graph graph = three_roles();
  graph.place({"a", "b"}, place_rule::apart);
  const std::vector<instance_place> standing = {{{"a", 0}, "a", {0}, {"a-gpu0"}, 0, "x"},
                                                {{"b", 0}, "a", {1}, {"a-gpu1"}, 0, "x"}};
  for (const char* role : {"a", "b"}) {
    CAPTURE(role);
    const std::vector<instance_id> next = {{role, 1}};
    CHECK(has(why_not(graph, equal_nodes(1), next, standing),
              "a: apart from a (a.0 is there); by the rule: apart [a, b]"));
    CHECK(place_instances(graph, equal_nodes(2), next, standing)[0].node == "b");
  }
}

TEST_CASE("a replacement comes to the GPUs of what it is together with") {
  job_graph graph = three_roles();
  graph.place({"a", "b"}, place_rule::together, place_level::gpu);
  const std::vector<node_resources> nodes = equal_nodes(3);
  std::vector<instance_place> standing = place_all(graph, nodes);
  const instance_place lost = place_of(standing, "b.1");
  std::erase_if(standing,
                [&](const auto& each) { return each.instance == lost.instance; });
  const std::vector<instance_id> wanted = {lost.instance};
  const auto places = place_instances(graph, nodes, wanted, standing);
  CHECK(places[0].node == lost.node);
  CHECK(places[0].gpus == lost.gpus);
  CHECK(places[0].why == "together with a.1");

  // Its node has no room any longer, or is gone.
  std::vector<node_resources> full = nodes;
  for (node_resources& each : full) each.cpus[0].cpus.resize(1);
  full.push_back(node_of("z", {9}));
  CHECK(why_not(graph, full, wanted, standing) ==
        "b.1 cannot be placed: needs 1 cpu beside a.1; " + lost.node +
            ": 0 cpus free; by the rule: together [a, b] at gpu");
  std::erase_if(full, [&](const auto& each) { return each.name == lost.node; });
  CHECK(why_not(graph, full, wanted, standing) ==
        "b.1 cannot be placed: it belongs on one node with a.1, which stands on " +
            lost.node + "; no such node is there");
}

TEST_CASE("what stands on two nodes cannot be joined") {
  job_graph graph = three_roles();
  graph.place({"a", "b", "c"}, place_rule::together);
  const std::vector<instance_place> standing = {{{"a", 0}, "a", {0}, {"a-gpu0"}, 0, "x"},
                                                {{"b", 0}, "b", {0}, {"b-gpu0"}, 0, "x"}};
  CHECK(why_not(graph, equal_nodes(2), {{"c", 0}}, standing) ==
        "c.0 cannot be placed: it belongs on one node with a.0, which stands on a, and "
        "with "
        "b.0, which stands on b");
}

TEST_CASE("a rule leaves nodes to those that come later") {
  job_graph graph("g");
  add_role(graph, "many", 6);
  add_role(graph, "few", 2);
  graph.place({"many", "few"}, place_rule::apart);
  const auto places = place_all(graph, equal_nodes(4));
  CHECK(counts_of(places, {"many"}) == counts{{"a", 2}, {"b", 2}, {"c", 2}});
  CHECK(counts_of(places, {"few"}) == counts{{"d", 2}});
}

TEST_SUITE_END();

}  // namespace manyworlds::mpmd_tests
