// Giving up: the exceptions of operations that their waiter has given up on.
#pragma once

#include <exception>

#include "manyworlds/detail/config.hpp"

namespace manyworlds::inline v0 {

/// Thrown when the time given to `within` had passed before the operation ended. The
/// operation has been withdrawn. (A world's operation has its own `.within`, which throws
/// world_error with cause `timed_out`.)
class MANYWORLDS_EXPORT timed_out : public std::exception {
 public:
  const char* what() const noexcept override { return "timed out"; }
};

/// Thrown when the stop token given to `stop_on` was triggered before the operation
/// ended. The operation has been withdrawn. Also thrown in place of a task's value when
/// its runtime stops. (A world's operation has its own `.stop`, which throws world_error
/// with cause `cancelled`.)
class MANYWORLDS_EXPORT stopped : public std::exception {
 public:
  const char* what() const noexcept override { return "stopped"; }
};

}  // namespace manyworlds::inline v0
