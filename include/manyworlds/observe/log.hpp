// Log: one line per change of state, to a sink that the user gives.
#pragma once

#include <cstdint>
#include <string_view>

#include "manyworlds/detail/config.hpp"

namespace manyworlds::inline v0 {

/// How grave a line is; `silent` is above all of them.
enum class log_level : std::uint8_t { debug, info, warning, error, silent };

[[nodiscard]] std::string_view name_of(log_level level) noexcept;

/// Receives a runtime's lines. Thread: any of the runtime's, several at once. Lifetime:
/// it must outlive the runtime, and the threads that a runtime's end has named as left
/// behind; static lifetime is safest.
///
///     class counting_log final : public mw::log_sink {
///       void write(mw::log_level level, std::string_view line) noexcept override {
///         if (level == mw::log_level::error) ++errors;
///         plain_.write(level, line);
///       }
///       mw::stderr_log plain_;
///     };
class log_sink {
 public:
  virtual ~log_sink() = default;
  /// Takes one line, without its end. Must not wait.
  virtual void write(log_level level, std::string_view line) noexcept = 0;
};

/// Writes lines to standard error, with the time of day and the process's id.
class stderr_log final : public log_sink {
 public:
  void write(log_level level, std::string_view line) noexcept override;
};

}  // namespace manyworlds::inline v0
