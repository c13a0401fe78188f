// Worker result: what a worker that has succeeded gives to its launcher.
#pragma once

#include <cstddef>
#include <string>

#include "io/descriptor.hpp"

namespace manyworlds::inline v0::detail {

/// The longest result of a worker, in bytes.
inline constexpr std::size_t longest_result = 64 * 1024;

/// A piece of memory that one process writes its result into, as into a file.
class worker_result {
 public:
  /// Errors: std::system_error where there can be no descriptor.
  worker_result();

  /// Returns the name under which processes of this machine open it, while this one
  /// lives.
  [[nodiscard]] std::string path() const;
  /// Returns what was written; what is longer is cut.
  [[nodiscard]] std::string read() const;

 private:
  unique_descriptor memory_;
};

/// Returns whether the descriptor is of such memory: a name in /proc may be that of any
/// file, if the launcher's number is another process's here.
[[nodiscard]] bool is_result_memory(int descriptor);

}  // namespace manyworlds::inline v0::detail
