// Job address: what a job that runs on this machine leaves for those who ask about it.
#pragma once

#include <optional>
#include <string>

#include "manyworlds/detail/config.hpp"

namespace manyworlds::inline v0::detail {

/// Where the meeting store of a job is, and the secret that it wants.
struct job_address {
  std::string job;
  std::string store;
  std::string secret_file;
};

/// Returns the folder that holds those of jobs. `base` empty: XDG_RUNTIME_DIR/manyworlds,
/// or /tmp/manyworlds-UID.
[[nodiscard]] std::string folder_of_jobs(const std::string& base);
/// Returns what the job of that name has told. Errors: std::runtime_error if there is
/// none, or it was killed.
[[nodiscard]] job_address address_of_job(const std::string& base, const std::string& job);
/// Returns how the job of that name has ended, as its master told last, in JSON; nothing
/// if it runs or never did.
[[nodiscard]] std::optional<std::string> end_of_job(const std::string& base,
                                                    const std::string& job);

}  // namespace manyworlds::inline v0::detail
