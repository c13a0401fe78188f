// Scenario: worlds, traffic and faults chosen by one seed.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace manyworlds_tests {

struct seed_report {
  std::vector<std::string> complaints;
  /// What a person needs who looks for the reason; empty if there is nothing to complain.
  std::string context;
  std::size_t operations = 0;
  std::size_t messages = 0;
  std::size_t worlds = 0;
  /// Links on which memory was shared.
  std::size_t shared_links = 0;
  std::uint64_t steps = 0;
  std::uint64_t fingerprint = 0;
};

/// Each process on a host of its own; or on one of a few, where they share memory.
enum class placement : unsigned char { apart, together };

/// The whole of one seed: 2 to 6 processes, 1 to 10 worlds, up to 5 faults.
/// `lines` of logs and events are kept for the context.
[[nodiscard]] seed_report run_seed(std::uint64_t seed, std::size_t lines = 60,
                                   placement where = placement::apart);

/// A world of 2 to 4 that is formed beside another, with trouble at a step that the seed
/// counts up.
[[nodiscard]] seed_report run_forming_seed(std::uint64_t seed, std::size_t lines = 60,
                                           placement where = placement::apart);

/// A world of 2 to 5 that is shrunk by its survivors, with trouble at a random step.
[[nodiscard]] seed_report run_shrinking_seed(std::uint64_t seed, std::size_t lines = 60,
                                             placement where = placement::apart);

/// A world of which the store is lost and comes back, empty, at a step of the forming.
[[nodiscard]] seed_report run_lost_store_seed(std::uint64_t seed, std::size_t lines = 60,
                                              placement where = placement::apart);
/// A world that a member fails, over connections as slow as the cause is long.
[[nodiscard]] seed_report run_late_words_seed(std::uint64_t seed, std::size_t lines = 60,
                                              placement where = placement::apart);
/// A lane for each request, and two thirds of them given up: the rest is answered.
[[nodiscard]] seed_report run_requests_seed(std::uint64_t seed, std::size_t lines = 60,
                                            placement where = placement::apart);
/// A world of 2 to 4 members that disagree on the root of one collective.
[[nodiscard]] seed_report run_disagreeing_seed(std::uint64_t seed, std::size_t lines = 60,
                                               placement where = placement::apart);
/// Calls of 4 to 16 users over 2 to 4 workers, which are stopped one by one or all at
/// once, or drained.
[[nodiscard]] seed_report run_dispatch_seed(std::uint64_t seed, std::size_t lines = 60,
                                            placement where = placement::apart);

/// A session of 2 to 4 workers that are killed, stopped and cut off, and up to four users
/// of it.
[[nodiscard]] seed_report run_sessions_seed(std::uint64_t seed, std::size_t lines = 60,
                                            placement where = placement::apart);

/// A world of 2 to 4 that does one small collective after another, with trouble at a step
/// of them.
[[nodiscard]] seed_report run_paged_seed(std::uint64_t seed, std::size_t lines = 60,
                                         placement where = placement::apart);
/// Three members that do one small collective after another, one of which is killed at
/// that step.
[[nodiscard]] seed_report run_paged_kill(std::uint64_t step, std::size_t lines = 60,
                                         placement where = placement::apart);

class cluster;
/// Closes it and says what came of it.
[[nodiscard]] seed_report finished(cluster& all);

}  // namespace manyworlds_tests
