// Runs seeds until one fails: `seed_runner random FIRST COUNT`. The planted bugs' judge,
// and a way to replay one seed with what it logged.
#include <cstdio>
#include <cstdlib>
#include <string_view>

#include "simulation/scenario.hpp"

int main(int argc, char** argv) {
  if (argc < 4) {
    std::fprintf(stderr,
                 "usage: %s random|shared|forming|forming-shared|shrinking|"
                 "shrinking-shared FIRST COUNT [-v]\n",
                 argv[0]);
    return 2;
  }
  const std::uint64_t first = std::strtoull(argv[2], nullptr, 10);
  const std::uint64_t count = std::strtoull(argv[3], nullptr, 10);
  const std::string_view scenario = argv[1];
  const auto run = scenario.starts_with("forming") ? &manyworlds_tests::run_forming_seed
                   : scenario.starts_with("shrinking")
                       ? &manyworlds_tests::run_shrinking_seed
                       : &manyworlds_tests::run_seed;
  const auto where = scenario.ends_with("shared") ? manyworlds_tests::placement::together
                                                  : manyworlds_tests::placement::apart;
  const bool verbose = argc > 4 && std::string_view(argv[4]) == "-v";
  for (std::uint64_t seed = first; seed < first + count; ++seed) {
    const std::size_t lines = verbose ? 100'000 : 60;
    const auto r = run(seed, lines, where);
    if (verbose) {
      std::printf(
          "seed %llu: %zu operations, %zu messages, %zu worlds, %zu shared links, %llu "
          "steps, %016llx\n",
          static_cast<unsigned long long>(seed), r.operations, r.messages, r.worlds,
          r.shared_links, static_cast<unsigned long long>(r.steps),
          static_cast<unsigned long long>(r.fingerprint));
      std::fflush(stdout);
    }
    if (r.complaints.empty()) continue;
    std::printf("seed %llu failed:\n", static_cast<unsigned long long>(seed));
    for (const auto& c : r.complaints) std::printf("%s\n", c.c_str());
    if (verbose) std::printf("%s", r.context.c_str());
    return 1;
  }
  std::printf("%llu seeds passed\n", static_cast<unsigned long long>(count));
  return 0;
}
