// Seeds: how many a test tries, and which one is to be replayed.
#pragma once

#include <doctest/doctest.h>

#include <cstdint>
#include <cstdlib>
#include <string>

#include "simulation/scenario.hpp"

namespace manyworlds_tests {

/// MANYWORLDS_TEST_SEEDS, or `otherwise`.
inline std::uint64_t seed_count(std::uint64_t otherwise) {
  const char* wanted = std::getenv("MANYWORLDS_TEST_SEEDS");
  return wanted ? std::strtoull(wanted, nullptr, 10) : otherwise;
}

/// Calls `run(seed)` for `count` seeds that are that far apart, or for MANYWORLDS_SEED
/// alone, until one complains.
template <class Run>
void for_each_seed(std::uint64_t first, std::uint64_t count, Run&& run,
                   std::uint64_t apart = 1) {
  if (const char* one = std::getenv("MANYWORLDS_SEED")) {
    first = std::strtoull(one, nullptr, 10);
    count = 1;
  }
  for (std::uint64_t seed = first; seed < first + count * apart; seed += apart) {
    const seed_report r = run(seed);
    if (r.complaints.empty()) continue;
    std::string text = "seed " + std::to_string(seed) +
                       " fails; replay it with MANYWORLDS_SEED=" + std::to_string(seed) +
                       "\n";
    for (const std::string& c : r.complaints) text += c + "\n";
    text += r.context;
    FAIL(text);
  }
}

}  // namespace manyworlds_tests
