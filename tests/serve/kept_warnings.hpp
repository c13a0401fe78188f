// A log that keeps its warnings, for tests in virtual time.
#pragma once

#include <algorithm>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "manyworlds/manyworlds.hpp"

namespace manyworlds::dispatch_tests {

class warnings final : public log_sink {
 public:
  void write(log_level level, std::string_view line) noexcept override {
    const std::lock_guard lock(mutex_);
    if (level >= log_level::warning) lines_.emplace_back(line);
  }
  [[nodiscard]] std::ptrdiff_t count(std::string_view part) const {
    const std::lock_guard lock(mutex_);
    return std::count_if(lines_.begin(), lines_.end(), [&](const std::string& line) {
      return line.find(part) != std::string::npos;
    });
  }

 private:
  mutable std::mutex mutex_;
  std::vector<std::string> lines_;
};

}  // namespace manyworlds::dispatch_tests
