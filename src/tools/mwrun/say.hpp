// Say: what mwrun tells its user.
#pragma once

#include <fmt/format.h>
#include <signal.h>
#include <unistd.h>

#include <string>
#include <string_view>

#include "launch/plain_text.hpp"

namespace mwrun {

/// Says a line in one write: those of several processes on one terminal stay whole.
inline void say(std::string_view line) {
  const std::string whole =
      fmt::format("mwrun: {}\n", manyworlds::detail::plain_text(line));
  [[maybe_unused]] const auto written =
      ::write(STDERR_FILENO, whole.data(), whole.size());
}

/// Returns "SIGTERM", or "signal 34" for one without a name.
inline std::string name_of_signal(int number) {
  const char* const abbreviation = sigabbrev_np(number);
  return abbreviation ? fmt::format("SIG{}", abbreviation)
                      : fmt::format("signal {}", number);
}

}  // namespace mwrun
