// Duration text: prints a time for people, "0.46 ms", "1.04 s", "3600 s".
#pragma once

#include <fmt/format.h>

#include <chrono>
#include <string>

#include "manyworlds/time.hpp"

namespace manyworlds::inline v0::detail {

[[nodiscard]] inline std::string duration_text(duration d) {
  const double ms = std::chrono::duration<double, std::milli>(d).count();
  if (ms < 1e3) return fmt::format("{:.3g} ms", ms);
  return ms < 1e6 ? fmt::format("{:.3g} s", ms / 1e3) : fmt::format("{:.0f} s", ms / 1e3);
}

}  // namespace manyworlds::inline v0::detail
