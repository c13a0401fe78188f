// Runs seeds until one fails: `seed_runner random FIRST COUNT`. The planted bugs' judge,
// and a way to replay one seed with what it logged.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <iterator>
#include <string_view>

#include "simulation/scenario.hpp"

namespace {

struct scenario_entry {
  std::string_view name;
  manyworlds_tests::seed_report (*run)(std::uint64_t, std::size_t,
                                       manyworlds_tests::placement);
};

/// `shared` alone means the first.
constexpr scenario_entry scenarios[] = {
    {"random", &manyworlds_tests::run_seed},
    {"forming", &manyworlds_tests::run_forming_seed},
    {"shrinking", &manyworlds_tests::run_shrinking_seed},
    {"disagreeing", &manyworlds_tests::run_disagreeing_seed},
    {"requests", &manyworlds_tests::run_requests_seed},
    {"paged", &manyworlds_tests::run_paged_seed},
    {"paged-kill", &manyworlds_tests::run_paged_kill},
    {"dispatch", &manyworlds_tests::run_dispatch_seed},
    {"sessions", &manyworlds_tests::run_sessions_seed},
    {"lost-store", &manyworlds_tests::run_lost_store_seed},
    {"late-words", &manyworlds_tests::run_late_words_seed},
};

}  // namespace

int main(int argc, char** argv) {
  if (argc < 4) {
    std::fprintf(stderr, "usage: %s SCENARIO[-shared] FIRST COUNT [-v], of", argv[0]);
    for (const scenario_entry& each : scenarios)
      std::fprintf(stderr, " %s", each.name.data());
    std::fputc('\n', stderr);
    return 2;
  }
  const std::uint64_t first = std::strtoull(argv[2], nullptr, 10);
  const std::uint64_t count = std::strtoull(argv[3], nullptr, 10);
  std::string_view scenario = argv[1];
  const bool is_shared = scenario == "shared" || scenario.ends_with("-shared");
  if (is_shared) scenario.remove_suffix(std::min(scenario.size(), sizeof "-shared" - 1));
  const auto* entry =
      std::find_if(std::begin(scenarios), std::end(scenarios),
                   [&](const scenario_entry& e) { return e.name == scenario; });
  if (scenario.empty()) entry = std::begin(scenarios);
  if (entry == std::end(scenarios)) {
    std::fprintf(stderr, "no scenario '%s'\n", argv[1]);
    return 2;
  }
  const auto run = entry->run;
  const auto where = is_shared ? manyworlds_tests::placement::together
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
