// Session floor: what a hand-written loop over n cache lines costs where a session has n
// workers: the least that any protocol of commands and answers can take.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <thread>
#include <vector>

namespace mwbench {

/// n threads, each of which waits on a line of its own and answers on another. With more
/// threads than CPUs they yield as they wait.
class session_floor {
 public:
  session_floor(int workers, std::size_t payload_bytes);
  session_floor(const session_floor&) = delete;
  session_floor& operator=(const session_floor&) = delete;
  ~session_floor();

  /// Writes all lines.
  void issue() noexcept;
  /// Waits until all have answered the last issue, or only the first.
  void await_all() const noexcept;
  void await_first() const noexcept;
  /// The time (`now_ns`) at which the last one saw the last issue. Precondition: all have
  /// answered it.
  [[nodiscard]] std::int64_t entered() const noexcept;
  /// Writes the payload, which each worker copies with the next issue.
  void write_payload() noexcept;

 private:
  struct place {
    alignas(128) std::atomic<std::uint64_t> asked{0};
    alignas(128) std::atomic<std::uint64_t> answered{0};
    std::atomic<std::int64_t> entered{0};
  };

  void work(int id);
  void await(int id) const noexcept;

  const bool yields_;
  std::uint64_t asked_ = 0;
  std::atomic<bool> has_payload_{false};
  std::atomic<bool> is_over_{false};
  std::vector<std::byte> source_;
  std::vector<std::byte> payload_;
  std::unique_ptr<place[]> places_;
  std::vector<std::thread> threads_;
};

}  // namespace mwbench
