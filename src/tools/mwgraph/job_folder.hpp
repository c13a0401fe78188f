// Job folder: what a job that runs on this machine leaves for those who ask about it.
#pragma once

#include <optional>
#include <string>

#include "io/descriptor.hpp"

namespace mwgraph {

/// Where the meeting store of a job is, and the secret that it wants.
struct job_address {
  std::string job;
  std::string store;
  std::string secret_file;
};

/// One folder for a job: its address, its secret, its context and its logs. Only its
/// user can read it.
class job_folder {
 public:
  /// Takes the folder of that job for this process; an earlier run's is begun anew.
  /// `base` empty: XDG_RUNTIME_DIR/manyworlds, or /tmp/manyworlds-UID. Errors:
  /// std::runtime_error if a job of that name runs; std::system_error.
  job_folder(const std::string& base, const std::string& job);
  job_folder(const job_folder&) = delete;
  job_folder& operator=(const job_folder&) = delete;
  ~job_folder() = default;

  [[nodiscard]] const std::string& path() const noexcept { return path_; }
  [[nodiscard]] std::string secret_file() const { return path_ + "/secret"; }
  [[nodiscard]] std::string context_file() const { return path_ + "/context"; }
  [[nodiscard]] std::string graph_file() const { return path_ + "/graph.json"; }
  [[nodiscard]] std::string logs() const { return path_ + "/logs"; }
  /// Says where its store is.
  void tell(const std::string& job, const std::string& store) const;
  /// Says how it has ended, in place of where it is.
  void tell_end(const std::string& status) const;

 private:
  std::string path_;
  manyworlds::detail::unique_descriptor lock_;
};

/// Returns what the job of that name has told. Errors: usage_error if there is none.
[[nodiscard]] job_address address_of_job(const std::string& base, const std::string& job);

/// Returns how the job of that name has ended, as its master told last; nothing if it
/// runs or never did.
[[nodiscard]] std::optional<std::string> end_of_job(const std::string& base,
                                                    const std::string& job);

/// Returns the folder that holds those of jobs.
[[nodiscard]] std::string folder_of_jobs(const std::string& base);

}  // namespace mwgraph
