// Slurm's names: lists of nodes, counts of tasks and ports in their short forms.
#include "launch/slurm_names.hpp"

#include <doctest/doctest.h>

#include <string>
#include <vector>

namespace manyworlds::launch_tests {

using namespace detail;
using names = std::vector<std::string>;

TEST_SUITE_BEGIN("launch");

TEST_CASE("C1 a list of Slurm's nodes is expanded, with zeros, ranges and suffixes") {
  const auto expand = [](const char* list) {
    const slurm_nodes nodes = expand_slurm_nodes(list);
    CAPTURE(nodes.error);
    CHECK(nodes.error.empty());
    return nodes.names;
  };
  CHECK(expand("n1") == names{"n1"});
  CHECK(expand("node[01-03,7],b-2") ==
        names{"node01", "node02", "node03", "node7", "b-2"});
  CHECK(expand("n[9-11]") == names{"n9", "n10", "n11"});
  CHECK(expand("n[09-11]x,m") == names{"n09x", "n10x", "n11x", "m"});
  CHECK(expand("r[1-2]n[3,5]") == names{"r1n3", "r1n5", "r2n3", "r2n5"});
  CHECK(expand("gpu-a.example.org,gpu-b") == names{"gpu-a.example.org", "gpu-b"});
  CHECK(expand("n[1-65536]").size() == 65536);
}

TEST_CASE("C1 a list of Slurm's nodes that is wrong or too long says what is expected") {
  const std::string long_name(256, 'n');
  for (const std::string& list : {
           std::string(),
           std::string(","),
           std::string("a,"),
           std::string(",a"),
           std::string("a,,b"),
           std::string("n["),
           std::string("n[1"),
           std::string("n[]"),
           std::string("n[1-"),
           std::string("n[-2]"),
           std::string("n[3-1]"),
           std::string("n[1,]"),
           std::string("n[a-b]"),
           std::string("n[1]]"),
           std::string("n]"),
           std::string("[1-3]"),
           std::string("n[1-2-3]"),
           std::string("n[1234567890]"),
           std::string("n[0-65536]"),
           std::string("n[1-999999999]"),
           std::string("n[1-300]m[1-300]"),
           std::string("n[1-65536],m"),
           std::string("n 1"),
           std::string("n\t[1]"),
           std::string("n\0m", 3),
           long_name,
           long_name.substr(2) + "[1-100]",
       }) {
    CAPTURE(list);
    const slurm_nodes nodes = expand_slurm_nodes(list);
    CHECK(nodes.names.empty());
    CHECK_FALSE(nodes.error.empty());
  }
}

TEST_CASE("C1 the tasks of a node are found in Slurm's counts") {
  CHECK(slurm_tasks_on("2,1", 0) == 2u);
  CHECK(slurm_tasks_on("2,1", 1) == 1u);
  CHECK(slurm_tasks_on("2(x3),1", 2) == 2u);
  CHECK(slurm_tasks_on("2(x3),1", 3) == 1u);
  CHECK(slurm_tasks_on("4(x999999999)", 999'999'998) == 4u);
  CHECK_FALSE(slurm_tasks_on("2(x3),1", 4));
  for (const char* wrong : {"", ",", "x", "2(x", "2(x)", "2(x2", "(x2)", "-1", "2;1"}) {
    CAPTURE(wrong);
    CHECK_FALSE(slurm_tasks_on(wrong, 1));
  }
}

TEST_CASE("C1 the first of Slurm's reserved ports is found") {
  CHECK(first_slurm_port("30001-30003") == 30001);
  CHECK(first_slurm_port("30001") == 30001);
  CHECK(first_slurm_port("30007,30009-30010") == 30007);
  for (const char* wrong : {"", "-", "0", "65536", "a", "30001x", "99999999999"}) {
    CAPTURE(wrong);
    CHECK_FALSE(first_slurm_port(wrong));
  }
}

TEST_SUITE_END();

}  // namespace manyworlds::launch_tests
