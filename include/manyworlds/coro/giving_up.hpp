// What an operation throws whose waiter has given up on it.
#pragma once

#include <exception>

#include "manyworlds/config.hpp"

namespace manyworlds::inline v0 {

/// The time given to `within` had passed before the operation ended. It has been
/// withdrawn. (An operation of a world has a `.within` of its own, which throws
/// world_error with cause `timed_out`.)
class MANYWORLDS_EXPORT timed_out : public std::exception {
 public:
  const char* what() const noexcept override { return "timed out"; }
};

/// The stop token given to `stop_on` was triggered before the operation ended. It has
/// been withdrawn. So is a task that was to give a value when its runtime stops. (An
/// operation of a world has a `.stop` of its own, which throws world_error with cause
/// `cancelled`.)
class MANYWORLDS_EXPORT stopped : public std::exception {
 public:
  const char* what() const noexcept override { return "stopped"; }
};

}  // namespace manyworlds::inline v0
