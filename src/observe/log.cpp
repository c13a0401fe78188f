#include "manyworlds/observe/log.hpp"

#include <fmt/chrono.h>
#include <fmt/format.h>
#include <unistd.h>

#include <chrono>

namespace manyworlds::inline v0 {

std::string_view name_of(log_level level) noexcept {
  switch (level) {
    case log_level::debug:
      return "debug";
    case log_level::info:
      return "info";
    case log_level::warning:
      return "warning";
    case log_level::error:
      return "error";
    case log_level::silent:
      break;
  }
  return "silent";
}

void stderr_log::write(log_level level, std::string_view line) noexcept {
  try {
    const auto now = std::chrono::system_clock::now();
    const auto millis =
        std::chrono::duration_cast<std::chrono::milliseconds>(now.time_since_epoch()) %
        1000;
    const std::string text =
        fmt::format("{:%H:%M:%S}.{:03} {} manyworlds[{}]: {}\n",
                    fmt::localtime(std::chrono::system_clock::to_time_t(now)),
                    millis.count(), name_of(level), getpid(), line);
    // One write per line: lines of several processes on one terminal stay whole.
    [[maybe_unused]] const auto written =
        ::write(STDERR_FILENO, text.data(), text.size());
  } catch (...) {
    // A line that cannot be formatted is not worth a process.
  }
}

}  // namespace manyworlds::inline v0
