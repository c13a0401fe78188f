// Process identity: who a process is, for people.
#pragma once

#include <cstdint>

#include "manyworlds/inline_text.hpp"

namespace manyworlds::inline v0 {

/// Printed in errors and dumps, never trusted.
struct process_identity {
  std::int64_t pid = 0;
  /// Cut short if it is longer.
  inline_text<63> host;
};

}  // namespace manyworlds::inline v0
