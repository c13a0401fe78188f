// Crowd: many processes in one simulation, and how much each of them had to do.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "manyworlds/observe/log.hpp"
#include "manyworlds/store/memory_store.hpp"
#include "manyworlds/testing/simulation.hpp"
#include "manyworlds/world/runtime.hpp"
#include "manyworlds/world/world.hpp"

namespace manyworlds_tests {

namespace mw = manyworlds;
using namespace std::chrono_literals;

/// What came to a process, in numbers that no clock and no load of the machine changes.
struct effort {
  std::uint64_t messages = 0;  ///< pieces of data that arrived
  std::uint64_t bytes = 0;
  std::uint64_t connections = 0;  ///< dialled or accepted
  std::uint64_t turns = 0;        ///< of its reactors
};

/// Each process on a host of its own, so that all they say to each other is counted.
class crowd final : private mw::log_sink {
 public:
  explicit crowd(std::size_t processes);
  crowd(const crowd&) = delete;
  crowd& operator=(const crowd&) = delete;
  ~crowd();

  /// A world of these processes, by rank, in which they stay until it breaks.
  void form(std::string name, std::vector<std::size_t> members);
  void kill(std::size_t process);

  /// Counting begins anew.
  void forget() { std::fill(efforts_.begin(), efforts_.end(), effort{}); }
  /// Messages of that many bytes no longer count.
  void pass_over(std::uint64_t bytes) { uncounted_ = bytes; }
  [[nodiscard]] const effort& of(std::size_t process) const { return efforts_[process]; }
  /// The greatest of each, whichever process made it.
  [[nodiscard]] effort greatest() const;
  /// Memberships that are up, and that have broken by a member's death.
  [[nodiscard]] std::size_t up() const { return up_; }
  [[nodiscard]] std::size_t bereft() const { return bereft_; }

  mw::simulation sim;

 private:
  struct resident {
    mw::simulated_process* process = nullptr;
    std::unique_ptr<mw::runtime> runtime;
    std::vector<mw::started<void>> tasks;
  };

  static mw::simulation_options network() {
    mw::simulation_options o;
    // A message is one piece.
    o.short_transfers = false;
    o.split_segments = false;
    o.late_requests = false;
    return o;
  }
  void write(mw::log_level, std::string_view) noexcept override {}
  void count(const mw::simulated_event& e);
  [[nodiscard]] mw::task<void> stay_in(mw::runtime& rt, mw::world_options options);

  mw::memory_store store_;
  std::vector<resident> residents_;
  std::unordered_map<std::string, std::size_t> by_name_;
  std::vector<effort> efforts_;
  std::uint64_t uncounted_ = 0;
  std::size_t up_ = 0;
  std::size_t bereft_ = 0;
};

}  // namespace manyworlds_tests
