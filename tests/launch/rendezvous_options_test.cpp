// What no rendezvous can be made of is refused by name, before anything is asked.
#include <doctest/doctest.h>

#include <string>

#include "manyworlds/launch/rendezvous.hpp"

using namespace manyworlds;

namespace {

/// What is said of options and a node that make no rendezvous.
std::string said_of(runtime& rt, const rendezvous_options& options,
                    node_description self = node_description("host", 2)) {
  try {
    const rendezvous meet(rt, options, std::move(self));
  } catch (const rendezvous_error& e) {
    CHECK(e.kind() == rendezvous_error_kind::bad_options);
    return e.what();
  }
  return "taken";
}

bool names(const std::string& said, const std::string& part) {
  CAPTURE(said);
  return said.find(part) != std::string::npos;
}

}  // namespace

TEST_SUITE_BEGIN("launch");

TEST_CASE("a rendezvous that cannot be meant is refused, and the option is named") {
  runtime rt;
  rendezvous_options good{.run_id = "job"};
  CHECK(said_of(rt, good) == "taken");
  for (const char* id : {"", "../x", "..", "a b"}) {
    rendezvous_options odd = good;
    odd.run_id = id;
    CHECK(names(said_of(rt, odd), "run id"));
  }
  rendezvous_options odd = good;
  odd.limits.min_nodes = 0;
  CHECK(names(said_of(rt, odd), "0 to 1 nodes"));
  odd.limits.min_nodes = 3;
  odd.limits.max_nodes = 2;
  CHECK(names(said_of(rt, odd), "3 to 2 nodes"));
  odd = good;
  odd.backend = "none of ours";
  CHECK(names(said_of(rt, odd), "none of ours"));
}

TEST_CASE("a node that no round can name is refused") {
  runtime rt;
  const rendezvous_options good{.run_id = "job"};
  CHECK(names(said_of(rt, good, node_description("", 1)), "host"));
  CHECK(names(said_of(rt, good, node_description("two hosts", 1)), "host"));
  CHECK(names(said_of(rt, good, node_description("host", 0)), "0 workers"));
  CHECK(names(said_of(rt, good, node_description("host", 1, "a role")), "role"));
}

TEST_CASE("a manual run has a fixed number of nodes, and ids that are not torchrun's") {
  runtime rt;
  rendezvous_options manual{.run_id = "job"};
  manual.backend = "manual";
  manual.endpoint = "127.0.0.1:29400";
  manual.limits.min_nodes = manual.limits.max_nodes = 2;
  CHECK(said_of(rt, manual) == "taken");
  rendezvous_options odd = manual;
  odd.node_rank = 2;
  CHECK(names(said_of(rt, odd), "node rank 2"));
  odd.node_rank = -1;
  CHECK(names(said_of(rt, odd), "node rank -1"));
  odd = manual;
  odd.limits.max_nodes = 3;
  CHECK(names(said_of(rt, odd), "fixed number of nodes"));
  node_description self("host", 1);
  self.id = "torchrun-1";
  CHECK(names(said_of(rt, manual, self), "torchrun-"));
}

TEST_SUITE_END();
