// The demo's screen: a row of rates every 100 ms, and events between the rows.
#pragma once

#include <fmt/format.h>

#include <array>
#include <chrono>
#include <cstdio>
#include <manyworlds/observe/log.hpp>
#include <mutex>
#include <string>
#include <string_view>

/// Prints rows and events. It also takes the library's log lines, from any thread.
class screen final : public mw::log_sink {
 public:
  explicit screen(bool is_quiet) : is_quiet_(is_quiet) {}

  void print(std::string_view text) noexcept {
    if (is_quiet_) return;
    const std::lock_guard lock(mutex_);
    std::fwrite(text.data(), 1, text.size(), stdout);
    std::fflush(stdout);
  }
  /// Prints what the demo does.
  void event(std::string_view what) {
    print(fmt::format("{:6.2f} s  >> {}\n", seconds(), what));
  }
  /// Prints what the library logs.
  void write(mw::log_level, std::string_view line) noexcept override {
    // The world that carries the control group's figures is not part of the show.
    if (line.starts_with("control-report")) return;
    print(fmt::format("{:6.2f} s     {}\n", seconds(), line));
  }
  void header() { print("\n    time        a        b        c  control   (MB/s)\n"); }
  /// Prints the rates of a, b, c and the control.
  void row(const std::array<double, 4>& rates, bool control_is_gone) {
    print(fmt::format("{:6.2f} s {:8.0f} {:8.0f} {:8.0f} {:>8}\n", seconds(), rates[0],
                      rates[1], rates[2],
                      control_is_gone ? "gone" : fmt::format("{:.0f}", rates[3])));
  }

  [[nodiscard]] double seconds() const noexcept {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start_)
        .count();
  }

 private:
  const bool is_quiet_;
  const std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
  std::mutex mutex_;
};

inline double in_ms(std::chrono::nanoseconds d) noexcept {
  return std::chrono::duration<double, std::milli>(d).count();
}
