// Device error: what a GPU has refused outside of any world.
#pragma once

#include <stdexcept>
#include <string>

#include "manyworlds/detail/config.hpp"

namespace manyworlds::inline v0 {

/// Is thrown for memory, a stream, a copy or a wait that CUDA refused. The text says what
/// was asked, CUDA's error by name and words, and what to do.
class MANYWORLDS_EXPORT device_error : public std::runtime_error {
 public:
  explicit device_error(const std::string& text, int code = 0, bool is_sticky = false)
      : std::runtime_error(text), code_(code), is_sticky_(is_sticky) {}

  /// Returns the cudaError_t; 0 if CUDA itself is not available.
  [[nodiscard]] int code() const noexcept { return code_; }
  /// Returns whether every later call of this process on that device fails as well:
  /// only another process can go on.
  [[nodiscard]] bool is_sticky() const noexcept { return is_sticky_; }

 private:
  int code_;
  bool is_sticky_;
};

}  // namespace manyworlds::inline v0
