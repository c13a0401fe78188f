// The worlds that an instance has at a bulk edge: both ends have to compute the same name
// and size, and different ranks.
#include <doctest/doctest.h>

#include <set>
#include <stdexcept>
#include <string>
#include <vector>

#include "manyworlds/mpmd/job_graph.hpp"
#include "mpmd/role_core.hpp"

namespace mw = manyworlds;

namespace {

using mw::detail::edge_world;

/// Two roles of different counts, the second of which may grow to three.
mw::job_graph two_roles(mw::edge_shape shape, const std::string& to = "to") {
  mw::job_graph g("job");
  g.role("from").run({"./x"}).count(2);
  g.role("to").run({"./x"}).count(1, 2, 3);
  g.role("other").run({"./x"});
  g.edge("e", "from", to).bulk(shape);
  return g;
}

std::vector<edge_world> edge_worlds_of(const mw::job_graph& g, const char* role,
                                       std::uint32_t index) {
  return mw::detail::worlds_of_edge(g, *g.find_edge("e"), {role, index});
}

/// Returns "NAME RANK/SIZE PEER", a line each.
std::string text_of_worlds(const std::vector<edge_world>& worlds) {
  std::string text;
  for (const edge_world& w : worlds)
    text += std::string(w.name.view()) + " " + std::to_string(w.rank) + "/" +
            std::to_string(w.size) +
            (w.peer.role.empty() ? "" : " with " + w.peer.text()) + "\n";
  return text;
}

}  // namespace

TEST_SUITE_BEGIN("job graphs");

TEST_CASE("pairs: a world with each peer up to the role's most, and from is rank 0") {
  const mw::job_graph g = two_roles(mw::pairs);
  CHECK(text_of_worlds(edge_worlds_of(g, "from", 1)) ==
        "e/from.1-to.0 0/2 with to.0\n"
        "e/from.1-to.1 0/2 with to.1\n"
        "e/from.1-to.2 0/2 with to.2\n");
  CHECK(text_of_worlds(edge_worlds_of(g, "to", 2)) ==
        "e/from.0-to.2 1/2 with from.0\n"
        "e/from.1-to.2 1/2 with from.1\n");
}

TEST_CASE(
    "pairs of one role with itself: the lower index is rank 0, and none is its own") {
  const mw::job_graph g = two_roles(mw::pairs, "from");
  CHECK(text_of_worlds(edge_worlds_of(g, "from", 0)) ==
        "e/from.0-from.1 0/2 with from.1\n");
  CHECK(text_of_worlds(edge_worlds_of(g, "from", 1)) ==
        "e/from.0-from.1 1/2 with from.0\n");
}

TEST_CASE("aligned: a world with the peer of its own index, if there may be one") {
  const mw::job_graph g = two_roles(mw::aligned);
  CHECK(text_of_worlds(edge_worlds_of(g, "from", 1)) == "e/from.1-to.1 0/2 with to.1\n");
  CHECK(text_of_worlds(edge_worlds_of(g, "to", 1)) == "e/from.1-to.1 1/2 with from.1\n");
  CHECK(edge_worlds_of(g, "to", 2).empty());
}

TEST_CASE("a group of two roles: ranks of from, then those of to, as many as start") {
  const mw::job_graph g = two_roles(mw::group);
  CHECK(text_of_worlds(edge_worlds_of(g, "from", 0)) == "e 0/4\n");
  CHECK(text_of_worlds(edge_worlds_of(g, "from", 1)) == "e 1/4\n");
  CHECK(text_of_worlds(edge_worlds_of(g, "to", 0)) == "e 2/4\n");
  CHECK(text_of_worlds(edge_worlds_of(g, "to", 1)) == "e 3/4\n");
}

TEST_CASE("a group of one role with itself: each is there once") {
  const mw::job_graph g = two_roles(mw::group, "from");
  CHECK(text_of_worlds(edge_worlds_of(g, "from", 0)) == "e 0/2\n");
  CHECK(text_of_worlds(edge_worlds_of(g, "from", 1)) == "e 1/2\n");
}

TEST_CASE("both ends of each pair agree, and another role has no part in the edge") {
  for (const mw::edge_shape shape : {mw::pairs, mw::aligned}) {
    const mw::job_graph g = two_roles(shape);
    std::set<std::string> ends[2];
    for (const char* const role : {"from", "to"})
      for (std::uint32_t n = 0; n < g.find_role(role)->counts.max; ++n)
        for (const edge_world& w : edge_worlds_of(g, role, n))
          CHECK(ends[w.rank].emplace(w.name.view()).second);
    CHECK(ends[0] == ends[1]);
    CHECK(ends[0].size() == (shape == mw::pairs ? 6 : 2));
    CHECK_THROWS_AS(static_cast<void>(edge_worlds_of(g, "other", 0)), std::logic_error);
  }
}

TEST_SUITE_END();
