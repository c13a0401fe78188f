// The job that a command line asks for.
#pragma once

#include <string>

#include "manyworlds/launch/launch_agent.hpp"
#include "mwrun/command_line.hpp"

namespace mwrun {

/// Returns the job. `inherited` are the variables of this process. Errors: usage_error
/// for what this machine has not, or mwrun does not do yet.
[[nodiscard]] mw::launch_options job_of(const command_line& line,
                                        mw::launch_variables inherited);

/// A new folder for the workers' files, below the one for temporary files. What has
/// stayed empty of it is removed at the end.
class own_log_folder {
 public:
  own_log_folder();
  own_log_folder(const own_log_folder&) = delete;
  own_log_folder& operator=(const own_log_folder&) = delete;
  ~own_log_folder();

  /// Returns its path; empty if it could not be made.
  [[nodiscard]] const std::string& path() const noexcept { return path_; }

 private:
  std::string path_;
};

/// Prints the commands and the variables of all workers as JSON.
void print_plan(const mw::launch_options& job);

}  // namespace mwrun
