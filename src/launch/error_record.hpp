// Error record: what a failed worker has written of itself.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace manyworlds::inline v0::detail {

/// A worker's error file. Both of torchrun's forms are read: a text with a time, and an
/// object with a call stack.
struct error_record {
  std::string message;  ///< what went wrong, in short; empty if it does not say
  std::string traceback;
  std::int64_t time = 0;  ///< seconds since 1970; 0 if it does not say
  std::string json;       ///< the file itself
};

/// Reads an error file. Nothing: there is none, or it is not what a worker writes, which
/// `why_not` names then. Only regular files of at most 4 MiB are read.
[[nodiscard]] std::optional<error_record> read_error_record(const std::string& path,
                                                            std::string& why_not);

/// Writes the record to another file, with the exit code within, as torchrun's agent
/// does for its own error file. Returns false if it cannot be written.
bool pass_on_error(const error_record& record, int code, const std::string& path);

}  // namespace manyworlds::inline v0::detail
