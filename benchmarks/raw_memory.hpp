// Raw memory: what lines of shared memory, process_vm_readv and memcpy do between the
// same two processes, in the same run.
#pragma once

#include <sys/types.h>
#include <sys/uio.h>

#include <atomic>
#include <cstdint>
#include <span>
#include <vector>

#include "payload_memory.hpp"
#include "timing.hpp"

namespace mwbench {

/// How what is longer than a line goes.
enum class way {
  read,  ///< the receiver reads it out of the sender's memory, what a cell holds by a
         ///< ring; all of it by a ring where it may not
  copy,  ///< the receiver copies it from where the sender shares it
  ring,  ///< copied into a ring of cells, and out of it
};

/// Memory that both processes map. Messages of at most a line are written into it.
class raw_memory {
 public:
  /// The leader makes it and says over the connection `fd` where it is; the other process
  /// opens it there. `largest` of all messages, of which `places` are received in turns.
  raw_memory(int fd, bool leads, way how, std::size_t largest, std::size_t places);
  ~raw_memory();
  raw_memory(const raw_memory&) = delete;
  raw_memory& operator=(const raw_memory&) = delete;

  /// From now on what is read is read in lists, into `places` in turns. The peer's
  /// message lies in its memory as the first place does from `first` on. Keep `places`.
  void read_lists(const char* first, std::span<const pieces> places) noexcept {
    first_ = first;
    lists_ = places;
  }

  /// Half round trips in microseconds; the other side echoes.
  samples ping(std::span<char> buffer, int count);
  void echo(std::span<char> buffer, int count);
  /// Seconds until `count` messages one way were read; the other side drains each into
  /// the next of its places, as it does with the world's.
  double stream(std::span<char> buffer, int count);
  void drain(std::span<char> memory, int count);

 private:
  static constexpr std::size_t cells = 16;
  static constexpr std::size_t cell_bytes = std::size_t{32} << 10;

  /// As many as the library's ring has, of one message each.
  static constexpr std::uint64_t lines = 64;
  static constexpr std::uint64_t quarter = lines / 4;

  struct alignas(64) line_of_ring {
    std::atomic<std::uint64_t> number;
    char message[48];
  };
  struct side {
    alignas(128) std::atomic<std::uint64_t> turn;
    char line[48];
    alignas(128) std::atomic<std::uint64_t> address;
    std::atomic<pid_t> pid;
    alignas(128) std::atomic<std::uint64_t> filled;
    alignas(128) std::atomic<std::uint64_t> emptied;
    alignas(128) std::atomic<std::uint64_t> read;
    alignas(128) line_of_ring ring[lines];
  };
  struct page {
    side of[2];
  };

  [[nodiscard]] char* shared(int of) const noexcept;
  [[nodiscard]] bool goes_by_ring(std::size_t bytes) const noexcept;
  void put_line(std::span<const char> message);
  void get_line(std::span<char> into);
  void give(std::span<char> buffer);
  void take(std::span<char> buffer, std::size_t place = 0);
  void read_peer(std::span<char> into);
  void read_list(const pieces& into);
  std::size_t read_some(std::span<const iovec> here, std::span<const iovec> there) const;
  void fill_cells(std::span<const char> from);
  void empty_cells(std::span<char> into);

  int own_;
  way how_;
  std::size_t places_;
  const char* first_ = nullptr;
  std::span<const pieces> lists_;
  std::size_t shared_bytes_;
  std::size_t mapped_bytes_;
  page* page_ = nullptr;
  std::uint64_t given_ = 0;
  std::uint64_t taken_ = 0;
  std::uint64_t filled_ = 0;
  std::uint64_t seen_emptied_ = 0;
  std::uint64_t emptied_ = 0;
  std::uint64_t put_ = 0;
  std::uint64_t seen_read_ = 0;
  std::uint64_t got_ = 0;
};

}  // namespace mwbench
