// Pictures of graphs, for Graphviz and Mermaid.
#include "mpmd/graph_picture.hpp"

#include <doctest/doctest.h>

#include <string>

namespace mw = manyworlds;

namespace {

mw::job_graph pictured() {
  mw::job_graph g("serving");
  g.role("router").run({"./s"}).driver().after("end");
  // A word of Mermaid's.
  g.role("end").run({"./s"}).count(1, 2, 12).session();
  g.edge("kv", "end", "router").bulk(mw::group).restart_together();
  g.edge("ask", "router", "end").calls();
  return g;
}

}  // namespace

TEST_SUITE_BEGIN("mpmd");

TEST_CASE("a picture for Graphviz has roles, edges and the order of starts") {
  CHECK(mw::detail::dot_picture(pictured()) == R"(digraph "serving" {
  node [shape=box];
  "router" [label="router x 1, driver", peripheries=2];
  "end" [label="end x 2 (1 to 12), spmd"];
  "end" -> "router" [label="kv: bulk, group", penwidth=3];
  "router" -> "end" [label="ask: calls"];
  "end" -> "router" [label="before", style=dotted];
}
)");
}

TEST_CASE("a picture for Mermaid has the same, and no role's name among its words") {
  CHECK(mw::detail::mermaid_picture(pictured()) == R"(flowchart LR
  r0["router x 1, driver"]
  r1["end x 2 (1 to 12), spmd"]
  r1 ==>|"kv: bulk, group"| r0
  r0 -->|"ask: calls"| r1
  r1 -.->|before| r0
)");
}

TEST_CASE("with states each role shows its instances by number, and theirs alone") {
  const mw::detail::instance_states states{{"end.10", "said \"no\""},
                                           {"end.2", "running"},
                                           {"ending.0", "lost"},
                                           {"router.0", "a<b\\c"}};
  const std::string dot = mw::detail::dot_picture(pictured(), states);
  CHECK(dot.find(
            R"([label="end x 2 (1 to 12), spmd\nend.2 running\nend.10 said \"no\""])") !=
        std::string::npos);
  CHECK(dot.find(R"(\nrouter.0 a<b\\c")") != std::string::npos);
  const std::string mermaid = mw::detail::mermaid_picture(pictured(), states);
  CHECK(mermaid.find("spmd<br/>end.2 running<br/>end.10 said #quot;no#quot;\"]") !=
        std::string::npos);
  CHECK(mermaid.find("router.0 a#lt;b\\c") != std::string::npos);
  CHECK(mermaid.find("ending") == std::string::npos);
}

TEST_SUITE_END();
