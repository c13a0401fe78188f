// Process identity: the pid and host of a process, for people.
#pragma once

#include <cstdint>

#include "manyworlds/inline_text.hpp"

namespace manyworlds::inline v0 {

/// Names a process in errors and dumps. It is never trusted.
struct process_identity {
  std::int64_t pid = 0;
  inline_text<63> host;  ///< cut if it is longer
};

}  // namespace manyworlds::inline v0
