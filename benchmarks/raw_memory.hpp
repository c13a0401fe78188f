// Raw memory: what a line of shared memory and process_vm_readv do between the same two
// processes, in the same run.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <cstdint>
#include <span>

#include "timing.hpp"

namespace mwbench {

/// A page that both processes map. Messages of at most a line are written into it; the
/// receiver of a larger one reads it out of the sender's memory.
class raw_memory {
 public:
  /// The leader makes it and says over the connection `fd` where it is; the other process
  /// opens it there.
  raw_memory(int fd, bool leads);
  ~raw_memory();
  raw_memory(const raw_memory&) = delete;
  raw_memory& operator=(const raw_memory&) = delete;

  /// Half round trips in microseconds; the other side echoes.
  samples ping(std::span<char> buffer, int count);
  void echo(std::span<char> buffer, int count);
  /// Seconds until `count` messages one way were read; the other side drains.
  double stream(std::span<char> buffer, int count);
  void drain(std::span<char> buffer, int count);

  /// Whether one may read the memory of the other.
  [[nodiscard]] bool can_read() const noexcept { return can_read_; }

 private:
  struct side {
    alignas(128) std::atomic<std::uint64_t> turn;
    char line[48];
    alignas(128) std::atomic<std::uint64_t> address;
    std::atomic<pid_t> pid;
  };
  struct page {
    side of[2];
  };

  void give(std::span<char> buffer);
  void take(std::span<char> buffer);
  void read_peer(std::span<char> into);

  int own_;
  page* page_ = nullptr;
  std::uint64_t given_ = 0;
  std::uint64_t taken_ = 0;
  bool can_read_ = true;
};

}  // namespace mwbench
