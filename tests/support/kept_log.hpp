// Kept log: a sink that keeps its lines, for tests of what is said.
#pragma once

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "manyworlds/observe/log.hpp"
#include "manyworlds/time.hpp"

namespace manyworlds::testing {

/// Keeps the lines instead of showing them.
class kept_log final : public log_sink {
 public:
  void write(log_level level, std::string_view line) noexcept override {
    {
      const std::lock_guard lock(mutex_);
      lines_.emplace_back(level, line);
    }
    changed_.notify_all();
  }
  /// Waits for it: a line may still be on its way from another thread.
  [[nodiscard]] bool gets(std::string_view part, std::ptrdiff_t times = 1,
                          duration limit = std::chrono::seconds(20)) const {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(
        lock, limit, [&] { return count_locked(part, log_level::debug) >= times; });
  }
  [[nodiscard]] bool has(std::string_view part) const { return count(part) > 0; }
  /// The lines with that in them, of that level or above.
  [[nodiscard]] std::ptrdiff_t count(std::string_view part,
                                     log_level from = log_level::debug) const {
    const std::lock_guard lock(mutex_);
    return count_locked(part, from);
  }

 private:
  std::ptrdiff_t count_locked(std::string_view part, log_level from) const {
    return std::count_if(lines_.begin(), lines_.end(), [&](const auto& line) {
      return line.first >= from && line.second.find(part) != std::string::npos;
    });
  }

  mutable std::mutex mutex_;
  mutable std::condition_variable changed_;
  std::vector<std::pair<log_level, std::string>> lines_;
};

}  // namespace manyworlds::testing
