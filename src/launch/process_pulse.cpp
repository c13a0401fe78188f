#include "launch/process_pulse.hpp"

#include <fmt/format.h>

#include <cstdlib>
#include <fstream>
#include <string>

#include "io/process_list.hpp"

namespace manyworlds::inline v0::detail {

namespace {

/// Returns how often it has let go of a processor, or was taken off one.
std::uint64_t switches_of(pid_t pid) {
  std::ifstream file(fmt::format("/proc/{}/status", pid));
  std::uint64_t all = 0;
  for (std::string line; std::getline(file, line);) {
    const std::size_t at = line.find("voluntary_ctxt_switches:");
    if (at == std::string::npos) continue;
    all += std::strtoull(line.c_str() + line.find(':') + 1, nullptr, 10);
  }
  return all;
}

}  // namespace

void process_pulse::look(pid_t pid, time_point now) {
  const auto seen = look_at_process(pid);
  const char state = seen ? seen->state : '?';
  // Only of one that seems to stand still it matters whether it does.
  const std::uint64_t switches = state == 'D' || state == 'T' ? switches_of(pid) : 0;
  const bool goes_on = pid != pid_ || state != state_ || switches != switches_;
  if (goes_on) {
    since_ = now;
    if (pid == pid_ && (state == 'D' || state_ == 'D')) last_at_disk_ = now;
    if (pid != pid_) last_at_disk_ = std::nullopt;
  }
  pid_ = pid;
  state_ = state;
  switches_ = switches;
}

}  // namespace manyworlds::inline v0::detail
