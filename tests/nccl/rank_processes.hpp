// Rank processes: where a test's ranks are more than the GPUs, each rank is a process
// that runs the same test for itself. NCCL takes two ranks of one host on one GPU for a
// mistake; NCCL_HOSTID says that they are of two, and is read once a process.
#pragma once

#include <doctest/doctest.h>

#include <cstdlib>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "device_fixture.hpp"
#include "manyworlds/gpu.hpp"
#include "manyworlds/mw.hpp"
#include "own_process.hpp"

namespace manyworlds::nccl_tests {

inline int devices_here() {
  int devices = 0;
  if (testing::cuda().cudaGetDeviceCount(&devices) != cudaSuccess) return 0;
  return devices;
}

/// Which rank this process is for, and where the others meet it.
struct rank_process {
  int rank;
  std::string store;

  [[nodiscard]] static std::optional<rank_process> here() {
    const char* rank = std::getenv("MANYWORLDS_TEST_RANK");
    const char* store = std::getenv("MANYWORLDS_TEST_STORE");
    if (!rank || !store) return std::nullopt;
    return rank_process{std::atoi(rank), store};
  }
};

/// The running test in a process of its own for `rank`, one of `ranks`, which are as many
/// hosts to NCCL where they have to share devices. `more` goes into its environment.
inline std::unique_ptr<testing::own_process> start_rank(
    int rank, int ranks, const hosted_store& meeting,
    std::vector<std::string> more = {}) {
  more.push_back("MANYWORLDS_TEST_RANK=" + std::to_string(rank));
  more.push_back("MANYWORLDS_TEST_STORE=" + meeting.address());
  if (devices_here() < ranks) more.push_back("NCCL_HOSTID=rank" + std::to_string(rank));
  return std::make_unique<testing::own_process>(
      doctest::getContextOptions()->currentTest->m_name, std::move(more));
}

/// False where the running test is to go on: for all ranks, or in a process of a rank's
/// own. Else it runs in such processes, and this checks that all of them passed.
inline bool runs_in_processes(int ranks) {
  if (testing::skips_without_device()) return true;
  if (rank_process::here() || devices_here() >= ranks) return false;
  runtime rt;
  const hosted_store meeting(rt, "127.0.0.1:0");
  std::vector<std::unique_ptr<testing::own_process>> all;
  for (int rank = 0; rank < ranks; ++rank) {
    all.push_back(start_rank(rank, ranks, meeting));
  }
  for (int rank = 0; rank < ranks; ++rank) {
    CAPTURE(rank);
    CHECK(all[static_cast<std::size_t>(rank)]->succeeded());
  }
  return true;
}

#define NEEDS_DEVICES(ranks) \
  if (manyworlds::nccl_tests::runs_in_processes(ranks)) return

}  // namespace manyworlds::nccl_tests
