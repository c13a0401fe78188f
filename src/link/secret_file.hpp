// Secret file: where a job's secret is kept, since arguments and environments can be read
// by other users.
#pragma once

#include <string>

#include "manyworlds/inline_text.hpp"

namespace manyworlds::inline v0::detail {

/// Returns the secret of a file, without the end of its line. Errors: std::runtime_error
/// naming the file if it cannot be read, or is empty or too long. Others than its owner
/// must not be able to read or write it, and the owner is this process's user or root.
[[nodiscard]] secret_text read_secret_file(const std::string& path);

/// Makes a file with a random secret that only its owner can read. Errors:
/// std::runtime_error naming the file, also if it exists; nothing is left of it then.
void make_secret_file(const std::string& path);

}  // namespace manyworlds::inline v0::detail
