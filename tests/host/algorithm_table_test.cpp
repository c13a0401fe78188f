// Algorithm table: each algorithm of a kind is an entry of its own, none is taken for
// another.
#include "host/algorithm_table.hpp"

#include <doctest/doctest.h>

#include <array>
#include <vector>

using namespace manyworlds;

namespace {

constexpr std::array every_algorithm{algorithm::flat, algorithm::direct,
                                     algorithm::logarithmic, algorithm::ring};

std::vector<operation_kind> kinds_of_the_table() {
  std::vector<operation_kind> kinds;
  for (const algorithm_rule& r : default_algorithms()) {
    if (kinds.empty() || kinds.back() != r.kind) kinds.push_back(r.kind);
  }
  return kinds;
}

bool has_function(operation_kind kind, algorithm use) {
  return host::function_for(kind, use) != nullptr;
}

}  // namespace

TEST_SUITE("host algorithm table") {
  TEST_CASE("each algorithm that a kind has is carried out by a function of its own") {
    const std::vector<operation_kind> kinds = kinds_of_the_table();
    CHECK(kinds.size() == 9);
    std::vector<host::collective_function> seen;
    for (const operation_kind kind : kinds) {
      for (const algorithm use : every_algorithm) {
        CAPTURE(name_of(kind));
        CAPTURE(name_of(use));
        const host::collective_function by = host::function_for(kind, use);
        CHECK(can_do(use, kind) == (by != nullptr));
        if (!by) continue;
        for (const host::collective_function other : seen) CHECK((by != other));
        seen.push_back(by);
      }
    }
    CHECK(seen.size() == 20);
  }

  TEST_CASE("what stands in no entry has no function") {
    CHECK(!has_function(operation_kind::barrier, algorithm::ring));
    CHECK(!has_function(operation_kind::gather, algorithm::logarithmic));
    CHECK(!has_function(operation_kind::send, algorithm::flat));
    CHECK(!has_function(operation_kind::broadcast, algorithm{0}));
    CHECK(!has_function(operation_kind::broadcast, algorithm{200}));
    CHECK(!has_function(static_cast<operation_kind>(200), algorithm::flat));
  }

  TEST_CASE("whatever the extent, what is chosen can be carried out") {
    for (const operation_kind kind : kinds_of_the_table()) {
      // Rules that are not possible are skipped, also those of the runtime.
      for (const algorithm wanted : every_algorithm) {
        const algorithm_rule own{kind, placement::anywhere, 1000, 1U << 30U, wanted};
        for (const rank_t members : {2, 3, 5, 9, 17, 1001}) {
          for (const std::size_t bytes : {0U, 1U << 10U, 1U << 16U, 1U << 24U}) {
            for (const bool one_host : {false, true}) {
              const algorithm use =
                  host::choose_algorithm({&own, 1}, {kind, members, bytes, one_host});
              CAPTURE(name_of(kind));
              CAPTURE(members);
              CHECK(has_function(kind, use));
              if (members <= 1000 && can_do(wanted, kind)) CHECK(use == wanted);
            }
          }
        }
      }
    }
  }
}
