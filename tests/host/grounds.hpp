// Grounds: what carries the messages of a test.
#pragma once

#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "link/remote_memory.hpp"
#include "manyworlds/testing/simulation.hpp"
#include "support/refused_here.hpp"

namespace manyworlds::host_tests {

/// Streams on a real engine or simulated; or memory that the members share, where
/// payloads are read from their sender or, where that is refused, asked for. What is
/// larger than a chunk is offered there, except for `shared_in_runs`: as in a world, up
/// to 64 KiB then go unasked in runs of chunks.
enum class ground {
  epoll,
  io_uring,
  simulated,
  shared,
  shared_on_io_uring,
  shared_simulated,
  asking,
  shared_in_runs
};
inline const std::vector<ground> all_grounds() {
  std::vector<ground> all{ground::epoll, ground::simulated, ground::asking};
  const bool can_read = !testing::reading_is_refused_here();
  if (can_read) {
    all.push_back(ground::shared);
    all.push_back(ground::shared_in_runs);
    all.push_back(ground::shared_simulated);
  }
  if (!testing::io_uring_is_refused_here()) {
    all.push_back(ground::io_uring);
    if (can_read) all.push_back(ground::shared_on_io_uring);
  }
  return all;
}
inline const char* name_of(ground g) {
  switch (g) {
    case ground::epoll:
      return "epoll";
    case ground::io_uring:
      return "io_uring";
    case ground::simulated:
      return "simulated";
    case ground::shared:
      return "shared memory";
    case ground::shared_on_io_uring:
      return "shared memory, io_uring";
    case ground::shared_simulated:
      return "shared memory, simulated";
    case ground::shared_in_runs:
      return "shared memory, runs unasked";
    case ground::asking:
      break;
  }
  return "shared memory, payloads asked for";
}
/// Where a member's end is the end of its streams.
inline std::vector<ground> stream_grounds() {
  std::vector<ground> all{ground::epoll, ground::simulated};
  if (!testing::io_uring_is_refused_here()) all.push_back(ground::io_uring);
  return all;
}
inline bool is_shared(ground g) { return g >= ground::shared; }
inline bool is_simulated(ground g) {
  return g == ground::simulated || g == ground::shared_simulated;
}
inline engine_kind engine_of(ground g) {
  return g == ground::io_uring || g == ground::shared_on_io_uring ? engine_kind::io_uring
                                                                  : engine_kind::epoll;
}

/// As the kernel reads, and takes its time in the simulation.
class slow_memory final : public shm::memory_reader {
 public:
  slow_memory(shm::remote_memory memory, simulated_process& reader)
      : memory_(std::move(memory)), reader_(reader) {}
  ssize_t read(std::span<const iovec> into,
               std::span<const iovec> from) noexcept override {
    const ssize_t got = memory_.read(into, from);
    if (got > 0) reader_.spend(duration(got / 8));
    return got;
  }

 private:
  shm::remote_memory memory_;
  simulated_process& reader_;
};

}  // namespace manyworlds::host_tests
