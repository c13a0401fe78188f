#include "algorithm_bench.hpp"
#include "all_to_all_in_rounds.hpp"

namespace manyworlds::host_tests {

TEST_SUITE("host added algorithm") {
  TEST_CASE("the algorithm that src/EXTENDING.md adds gives each member its parts") {
    for (const ground where : all_grounds()) {
      for (const rank_t size : {2, 3, 5}) {
        for (const std::size_t count : {1U, 1000U, 50'000U}) {
          for (const bool variable : {false, true}) {
            CAPTURE(name_of(where));
            CAPTURE(size);
            CAPTURE(count);
            cluster c(size, where);
            collective_run all(operation_kind::all_to_all, size, count, sum, 0, false,
                               variable);
            algorithm_bench::run(c, all, host::all_to_all_in_rounds);
            all.check();
          }
        }
      }
    }
  }
}

}  // namespace manyworlds::host_tests
