// Source position: where in the user's code an operation was asked for.
#pragma once

#include "manyworlds/detail/config.hpp"

namespace manyworlds::inline v0 {

/// Stands for std::source_location, which clang 14 lacks with libstdc++ 12. A default
/// argument of this type names the caller's line.
class source_position {
 public:
  constexpr source_position(
      const char* file = __builtin_FILE(),
      unsigned line = static_cast<unsigned>(__builtin_LINE())) noexcept
      : file_(file), line_(line) {}

  [[nodiscard]] constexpr const char* file_name() const noexcept { return file_; }
  [[nodiscard]] constexpr unsigned line() const noexcept { return line_; }

 private:
  const char* file_;
  unsigned line_;
};

}  // namespace manyworlds::inline v0
