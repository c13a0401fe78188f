// NVTX recorder: a tool as NVTX loads it (NVTX_INJECTION64_PATH), that keeps what it is
// told for the test in the same process.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>

namespace manyworlds::testing {

enum class told : std::uint8_t { start, end, push, pop, mark, thread, stream };

struct recorded_event {
  told what = told::mark;
  std::string domain;  ///< empty for names of threads and streams
  std::string text;    ///< of an end and a pop: empty
  std::uint64_t payload = 0;
  std::uint64_t id = 0;  ///< of a start and its end
  ::pid_t thread = 0;    ///< the one that told it, or that is named
};

/// Calls `each` with all that was recorded since the process began, in order.
using recorded_function = void(void (*each)(void* context, const recorded_event& event),
                               void* context);
inline constexpr const char* recorded_name = "manyworlds_nvtx_recorded";

}  // namespace manyworlds::testing
