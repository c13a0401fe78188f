// Memory kills: counts the processes that the kernel killed for memory.
#pragma once

#include <cstdint>
#include <mutex>
#include <string>

namespace manyworlds::inline v0::detail {

/// Tells whether a SIGKILL that nothing here sent came of the kernel. It reads the count
/// of our own control group (memory.events, or memory.oom_control of version 1), else the
/// machine's. Each kill explains one death. Thread: any.
class memory_kills {
 public:
  memory_kills();
  /// Returns true if there was a kill since the last one that explained a death.
  [[nodiscard]] bool explain_one();

 private:
  [[nodiscard]] std::uint64_t count() const;

  std::mutex mutex_;
  std::string path_;
  std::uint64_t explained_ = 0;
};

}  // namespace manyworlds::inline v0::detail
