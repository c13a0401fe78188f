// What keeps a graph from being run: each fault with its field, and nothing besides.
#include <doctest/doctest.h>

#include <chrono>
#include <functional>
#include <string>
#include <vector>

#include "manyworlds/mpmd/job_graph.hpp"

namespace mw = manyworlds;
using namespace std::chrono_literals;

namespace {

using spoil = std::function<void(mw::job_graph&)>;

/// Two roles and an edge, with which nothing is wrong.
mw::job_graph good_graph() {
  mw::job_graph g("job");
  g.role("a").run({"./a"}).count(2);
  g.role("b").run({"./b"}).count(2);
  g.edge("e", "a", "b").bulk(mw::pairs);
  return g;
}

/// Claims that a graph which is spoiled so has one fault, of that field and text.
void claim_fault(const std::string& field, const std::string& what, const spoil& how) {
  CAPTURE(field);
  CAPTURE(what);
  mw::job_graph g = good_graph();
  how(g);
  const auto found = g.check();
  std::string all;
  for (const mw::graph_objection& each : found)
    all += each.field + ": " + each.text() + '\n';
  CAPTURE(all);
  REQUIRE(found.size() == 1);
  CHECK(found[0].field == field);
  CHECK(found[0].what.find(what) != std::string::npos);
  CHECK(found[0].text() == found[0].what);
}

void claim_fine(const spoil& how) {
  mw::job_graph g = good_graph();
  how(g);
  for (const mw::graph_objection& each : g.check()) FAIL_CHECK(each.text());
}

}  // namespace

TEST_SUITE_BEGIN("mpmd");

TEST_CASE("graph B3: a graph needs a name and roles, and names have their letters") {
  claim_fine([](mw::job_graph&) {});
  claim_fault("role", "no role", [](mw::job_graph& g) { g = mw::job_graph("job"); });
  const auto named = [](const char* name) {
    return [name](mw::job_graph& g) {
      g = mw::job_graph(name);
      g.role("a").run({"./a"});
    };
  };
  claim_fault("name", "the job has no name", named(""));
  claim_fault("name", "begin with a letter", named("1job"));
  claim_fault("name", "letters, digits, '-' and '_'", named("my job"));
  claim_fault("name", "has 25 bytes, and may have 24",
              named("abcdefghijklmnopqrstuvwxy"));
  claim_fine(named("abcdefghijklmnopqrstuvwx"));
  claim_fault("role.\"a.b\"", "letters, digits",
              [](mw::job_graph& g) { g.role("a.b").run({"./a"}); });
  claim_fault("role.\"\"", "the role has no name",
              [](mw::job_graph& g) { g.role("").run({"./a"}); });
  claim_fault("edge.\"e/f\"", "letters, digits",
              [](mw::job_graph& g) { g.edge("e/f", "a", "b"); });
}

TEST_CASE("graph B3: a role needs a program, and variables that a process can have") {
  claim_fault("role.c.run", "names no program", [](mw::job_graph& g) { g.role("c"); });
  claim_fault("role.a.run[0]", "the program, is empty",
              [](mw::job_graph& g) { g.role("a").run({""}); });
  claim_fault("role.a.run[1]", "zero", [](mw::job_graph& g) {
    g.role("a").run({"./a", std::string("x\0y", 3)});
  });
  claim_fault("role.a.run[1]", "no UTF-8", [](mw::job_graph& g) {
    g.role("a").run({"./a", "\xff"});
  });
  claim_fine([](mw::job_graph& g) { g.role("a").run({"./a", ""}); });
  claim_fault("role.a.folder", "no UTF-8",
              [](mw::job_graph& g) { g.role("a").in_folder("\xed\xa0\x80"); });
  claim_fault("role.a.env.\"X=\"", "no name of a variable",
              [](mw::job_graph& g) { g.role("a").variable("X=", "1"); });
  claim_fault("role.a.env.1X", "no name of a variable",
              [](mw::job_graph& g) { g.role("a").variable("1X", "1"); });
  claim_fault("role.a.env.ROLE_RANK", "set by the agent",
              [](mw::job_graph& g) { g.role("a").variable("ROLE_RANK", "1"); });
  claim_fault("role.a.env.CUDA_VISIBLE_DEVICES", "set by the agent",
              [](mw::job_graph& g) {
                g.role("a").variable("CUDA_VISIBLE_DEVICES", "1").needs.gpus = 1;
              });
  claim_fault("role.a.env.MANYWORLDS_AGENT", "set by the agent",
              [](mw::job_graph& g) { g.role("a").variable("MANYWORLDS_AGENT", "1"); });
}

TEST_CASE("graph B3: counts rise from min over start to max, and groups divide them") {
  claim_fault("role.a.count.min", "min is 3, above start, 2",
              [](mw::job_graph& g) { g.role("a").count(3, 2, 4); });
  claim_fault("role.a.count.start", "start is 5, above max, 4",
              [](mw::job_graph& g) { g.role("a").count(1, 5, 4); });
  claim_fault("role.a.count.max", "at most 65536", [](mw::job_graph& g) {
    g = mw::job_graph("job");
    g.role("a").run({"./a"}).count(0, 0, 65537);
  });
  claim_fault("role.a.per_group", "3, does not divide the count at the start, 2",
              [](mw::job_graph& g) { g.role("a").per_group = 3; });
  claim_fault("role.a.per_group", "2, does not divide the largest count, 3",
              [](mw::job_graph& g) { g.role("a").count(1, 2, 3).per_group = 2; });
  claim_fault("role.a.per_group", "1 or more",
              [](mw::job_graph& g) { g.role("a").per_group = 0; });
  claim_fault("role.a.count", "a controller and a worker",
              [](mw::job_graph& g) { g.role("a").count(1).session(); });
  claim_fine([](mw::job_graph& g) { g.role("a").count(2).session(); });
  claim_fine([](mw::job_graph& g) { g.role("a").count(0).session(); });
  claim_fault("role", "up to 80002 instances", [](mw::job_graph& g) {
    g.role("c").run({"./c"}).count(40000);
    g.role("d").run({"./d"}).count(39998);
  });
}

TEST_CASE("graph B3: what is needed is bounded, and labels are") {
  claim_fault("role.a.needs.gpus", "at most 4096",
              [](mw::job_graph& g) { g.role("a").needs.gpus = 5000; });
  claim_fault("role.a.needs.cpus", "at most 65536",
              [](mw::job_graph& g) { g.role("a").needs.cpus = 70000; });
  claim_fault("role.a.needs.labels[1]", "stands there twice", [](mw::job_graph& g) {
    g.role("a").needs.labels = {"x", "x"};
  });
  claim_fault("role.a.needs.labels[0]", "no label",
              [](mw::job_graph& g) { g.role("a").needs.labels = {""}; });
  // No node can have them.
  for (const char* const label : {"fast node", "a,b", "gr\xc3\xb6\xc3\x9f\x65"})
    claim_fault("role.a.needs.labels[0]", "without blanks and commas",
                [label](mw::job_graph& g) { g.role("a").needs.labels = {label}; });
}

TEST_CASE("graph B3: what could not be recorded, or not be read again, is objected to") {
  claim_fault("role.a", "two roles are named \"a\"",
              [](mw::job_graph& g) { g.role("c").run({"./c"}).name = "a"; });
  claim_fault("", "at most 131072 are recorded", [](mw::job_graph& g) {
    for (int i = 0; i < 40; ++i)
      g.role("r" + std::to_string(i)).run({std::string(4000, 'x')});
  });
}

TEST_CASE("graph B3: budgets and times are what can pass") {
  claim_fault("role.a.restart.per", "above zero", [](mw::job_graph& g) {
    g.role("a").restart(mw::restart_when::on_failure, {3, 0s});
  });
  claim_fault("role.a.restart.tries", "at most 4096", [](mw::job_graph& g) {
    g.role("a").restart(mw::restart_when::on_failure, {4097, 1s});
  });
  claim_fine([](mw::job_graph& g) {
    g.role("a").restart(mw::restart_when::always, {0, 1s});
  });
  claim_fault("restart.per", "above zero", [](mw::job_graph& g) {
    g.whole_job = {1, -1s};
  });
  claim_fault("absence", "at least 10s", [](mw::job_graph& g) { g.absence = 9s; });
  claim_fault("absence", "at least 10s", [](mw::job_graph& g) { g.absence = -1h; });
  claim_fine([](mw::job_graph& g) { g.absence = 10s; });
  claim_fault("role.a.hang_after", "zero or more",
              [](mw::job_graph& g) { g.role("a").hang_after = -1s; });
  claim_fault("role.a.drain", "zero or more",
              [](mw::job_graph& g) { g.role("a").drain_for = -1s; });
  claim_fault("role.a.drain", "at most 24h",
              [](mw::job_graph& g) { g.role("a").drain_for = 25h; });
  claim_fault("role.a.grace", "at most 24h",
              [](mw::job_graph& g) { g.role("a").grace = mw::duration::max(); });
  claim_fault("role.a.ready_within", "above zero",
              [](mw::job_graph& g) { g.role("a").ready_within = 0s; });
  claim_fine([](mw::job_graph& g) { g.role("a").ready_within = mw::duration::max(); });
}

TEST_CASE("graph B3: a cycle in `after` is named whole, and once") {
  claim_fault("role.a.after", "after: a -> b -> c -> a is a circle",
              [](mw::job_graph& g) {
                g.role("c").run({"./c"}).after("a");
                g.role("a").after("b");
                g.role("b").after("c");
                // It leads into the cycle, and is in none.
                g.role("d").run({"./d"}).after("a");
              });
  claim_fault("role.b.after", "after: b -> b is",
              [](mw::job_graph& g) { g.role("b").after("b"); });
  mw::job_graph two = good_graph();
  two.role("a").after("b");
  two.role("b").after("a");
  two.role("c").run({"./c"}).after("d");
  two.role("d").run({"./d"}).after("c");
  CHECK(two.check().size() == 2);
  claim_fault("role.a.after[1]", "twice",
              [](mw::job_graph& g) { g.role("a").after("b").after("b"); });
  claim_fault("role.a.after[0]", "no role \"B\"; did you mean \"b\"?",
              [](mw::job_graph& g) { g.role("a").after("B"); });
  claim_fine([](mw::job_graph& g) { g.edge("back", "b", "a").bulk(mw::pairs); });
}

TEST_CASE("graph B3: controllers are other roles, and ask in no circle") {
  claim_fault("role.a.controller", "no role \"z\"",
              [](mw::job_graph& g) { g.role("a").controller("z"); });
  claim_fault("role.a.controller", "controller: a -> b -> a is a circle",
              [](mw::job_graph& g) {
                g.role("a").controller("b");
                g.role("b").controller("a");
              });
  claim_fault("role.a.controller", "controller: a -> a",
              [](mw::job_graph& g) { g.role("a").controller("a"); });
  claim_fault("role.a.controller", "no instance that could be asked",
              [](mw::job_graph& g) {
                g.role("a").controller("c");
                g.role("c").run({"./c"}).count(0);
              });
}

TEST_CASE(
    "graph B3: a job without drivers is one that is stopped, and drivers must run") {
  claim_fine([](mw::job_graph& g) { g.role("a").driver(); });
  claim_fault("role.a.driver", "would end at once",
              [](mw::job_graph& g) { g.role("a").driver().count(0, 0, 2); });
  claim_fine([](mw::job_graph& g) {
    g.role("a").driver().count(0, 0, 2);
    g.role("b").driver();
  });
  claim_fault("role.a.restart.when", "never ends", [](mw::job_graph& g) {
    g.role("a").driver().restart(mw::restart_when::always);
  });
}

TEST_CASE("graph B3: an edge has two ends that are there, and one name") {
  claim_fault("edge.kv.to", "edge \"kv\": no role \"decodes\"; did you mean \"decode\"?",
              [](mw::job_graph& g) {
                g.role("prefill").run({"./b"});
                g.role("decode").run({"./b"});
                g.edge("kv", "prefill", "decodes").bulk(mw::pairs);
              });
  claim_fault("edge.f.from", "from is missing",
              [](mw::job_graph& g) { g.edge("f", "", "b"); });
  claim_fault("edge.e", "another edge has that name",
              [](mw::job_graph& g) { g.edge("e", "b", "a").calls(); });
  claim_fine([](mw::job_graph& g) { g.edge("f", "a", "b").calls().restart_together(); });
}

TEST_CASE("graph B3: shapes fit the counts of both roles") {
  claim_fault("edge.f.shape", "equal counts", [](mw::job_graph& g) {
    g.role("c").run({"./c"}).count(1, 2, 3);
    g.edge("f", "a", "c").bulk(mw::aligned);
  });
  claim_fault("edge.f.shape", "with itself",
              [](mw::job_graph& g) { g.edge("f", "a", "a").bulk(mw::aligned); });
  claim_fine([](mw::job_graph& g) {
    g.edge("f", "a", "a").bulk(mw::pairs);
    g.edge("g", "a", "a").bulk(mw::group);
    g.edge("h", "a", "a").calls();
    g.edge("i", "a", "b").bulk(mw::aligned);
  });
  claim_fault("edge.f.to", "no pair", [](mw::job_graph& g) {
    g.role("c").run({"./c"});
    g.edge("f", "c", "c").bulk(mw::pairs);
  });
  claim_fault("edge.f.shape", "has no shape",
              [](mw::job_graph& g) { g.edge("f", "a", "b").calls().shape = mw::group; });
  claim_fault("edge.f.shape", "up to 4097 members", [](mw::job_graph& g) {
    g.role("c").run({"./c"}).count(4095);
    g.edge("f", "a", "c").bulk(mw::group);
  });
  const auto pairs_among = [](std::uint32_t count) {
    return [count](mw::job_graph& g) {
      g.role("c").run({"./c"}).count(count);
      g.edge("f", "c", "c").bulk(mw::pairs);
    };
  };
  claim_fine(pairs_among(1400));
  claim_fault("edge.f.shape", "1124250 worlds", pairs_among(1500));
  claim_fault("edge.f.shape", "4000000 worlds", [](mw::job_graph& g) {
    g.role("c").run({"./c"}).count(2000);
    g.role("d").run({"./d"}).count(2000);
    g.edge("f", "c", "d").bulk(mw::pairs);
  });
}

TEST_CASE("graph B3: names of worlds fit with the highest index") {
  const auto edge_of = [](std::uint32_t most) {
    return [most](mw::job_graph& g) {
      // "job/" and "e/" with 24 and 28 letters, two dots, a dash and two digits: 63.
      g.role("abcdefghijklmnopqrstuvwx").run({"./a"}).count(0, 0, most);
      g.role("abcdefghijklmnopqrstuvwy").run({"./a"}).count(0, 0, most);
      g.edge("efgh", "abcdefghijklmnopqrstuvwx", "abcdefghijklmnopqrstuvwy");
    };
  };
  claim_fine(edge_of(10));
  claim_fault("edge.efgh", "64 bytes, and may have 63", edge_of(100));
}

TEST_CASE("graph B3, B4: a rule of placement names roles that are there, by their case") {
  const auto place = [](std::vector<std::string> roles, mw::place_rule rule) {
    return [=](mw::job_graph& g) { g.place(roles, rule); };
  };
  claim_fine(place({"a", "b"}, mw::place_rule::together));
  claim_fault("place[0].roles", "missing", place({}, mw::place_rule::pack));
  claim_fault("place[0].roles[1]", "no role \"B\"; did you mean \"b\"?",
              place({"a", "B"}, mw::place_rule::apart));
  claim_fault("place[0].roles[2]", "stands there twice",
              place({"a", "b", "a"}, mw::place_rule::together));
  claim_fault("place[0].roles", "two roles or more",
              place({"a"}, mw::place_rule::together));
  claim_fault("place[0].roles", "spread is one", place({"a"}, mw::place_rule::apart));
  claim_fine(place({"a"}, mw::place_rule::spread));
  claim_fault("place[0].roles", "\"a\" has 2 up to 2, \"c\" has 3 up to 3",
              [](mw::job_graph& g) {
                g.role("c").run({"./c"}).count(3);
                g.place({"a", "c"}, mw::place_rule::together);
              });
}

TEST_CASE("graph B3: rules of GPUs are for roles that need some") {
  const auto gpus = [](std::uint32_t a, std::uint32_t b, mw::place_rule rule) {
    return [=](mw::job_graph& g) {
      g.role("a").needs.gpus = a;
      g.role("b").needs.gpus = b;
      g.place({"a", "b"}, rule, mw::place_level::gpu);
    };
  };
  claim_fine(gpus(1, 1, mw::place_rule::together));
  claim_fine(gpus(1, 2, mw::place_rule::apart));
  claim_fault("place[0].roles[1]", "\"b\" needs no GPU",
              gpus(1, 0, mw::place_rule::apart));
  claim_fault("place[0].roles[1]", "needs 2 GPUs, and is together with one that needs 1",
              gpus(1, 2, mw::place_rule::together));
  claim_fault("place[0].level", "a rule for nodes", gpus(1, 1, mw::place_rule::spread));
}

TEST_CASE("graph B3: rules that no placement could keep are named with each other") {
  using enum mw::place_rule;
  using level = mw::place_level;
  const auto both = [](mw::place_rule one, level at, mw::place_rule other, level there,
                       std::vector<std::string> roles = {"a", "b"}) {
    return [=](mw::job_graph& g) {
      for (const char* each : {"a", "b", "c"}) g.role(each).run({"./x"}).count(2);
      for (const char* each : {"a", "b", "c"}) g.role(each).needs.gpus = 1;
      g.place({"a", "b"}, one, at).place(roles, other, there);
    };
  };
  claim_fault("place[1].rule",
              "apart contradicts place[0], together at level node, for \"a\", \"b\"",
              both(together, level::node, apart, level::node));
  claim_fault("place[1].rule", "together contradicts place[0], apart",
              both(apart, level::gpu, together, level::gpu));
  claim_fault("place[1].rule", "together contradicts place[0], apart at level node",
              both(apart, level::node, together, level::gpu));
  claim_fine(both(together, level::node, apart, level::gpu));
  claim_fine(both(apart, level::node, together, level::node, {"a", "c"}));
  claim_fault("place[1].roles", "\"a\" is in place[0], together at level node already",
              both(together, level::node, together, level::node, {"a", "c"}));
  claim_fine(both(together, level::node, together, level::gpu));
  claim_fault("place[1].rule", "spread contradicts place[0], pack",
              both(pack, level::node, spread, level::node, {"b", "c"}));
  claim_fault("place[1].rule", "exclusive contradicts place[0], together",
              both(together, level::node, exclusive, level::node, {"a"}));
  claim_fine(both(together, level::node, exclusive, level::gpu, {"a"}));
  claim_fine(both(together, level::node, exclusive, level::node));
}

TEST_CASE("graph B3: all that is wrong is said at once, in the order of the graph") {
  mw::job_graph g("my job");
  g.role("a").count(2, 1, 1);
  g.edge("e", "a", "c");
  g.place({"d"}, mw::place_rule::pack);
  std::vector<std::string> fields;
  for (const mw::graph_objection& each : g.check()) fields.push_back(each.field);
  CHECK(fields == std::vector<std::string>{"name", "role.a.run", "role.a.count.min",
                                           "edge.e.to", "place[0].roles[0]"});
}

TEST_CASE("a graph of too many parts is refused before each is looked at") {
  claim_fault("role", "1025 roles, and a graph has at most 1024", [](mw::job_graph& g) {
    for (int i = 0; g.roles().size() < 1025; ++i) g.role("r" + std::to_string(i));
  });
  claim_fault("edge", "4097 edges", [](mw::job_graph& g) {
    while (g.edges().size() < 4097) g.edge("x", "y", "z");
  });
  claim_fault("place", "257 rules", [](mw::job_graph& g) {
    while (g.places().size() < 257) g.place({"x"}, mw::place_rule::pack);
  });
}

TEST_SUITE_END();
