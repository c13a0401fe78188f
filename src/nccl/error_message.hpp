// Error message: why a device or a communicator is not available.
#pragma once

#include <string>

#include "manyworlds/failure.hpp"

namespace manyworlds::inline v0::detail::nccl {

/// Says what a world fails with, before it has a failure of its own. Empty if nothing
/// is wrong.
struct error_message {
  cause why = cause::none;
  std::string text;

  explicit operator bool() const noexcept { return why != cause::none; }
};

}  // namespace manyworlds::inline v0::detail::nccl
