// Job folder: the folder of a job that runs on this machine.
#pragma once

#include <string>

#include "io/descriptor.hpp"

namespace mwgraph {

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
  void keep_graph(const std::string& json) const;
  /// Says where its store is.
  void tell(const std::string& job, const std::string& store) const;
  /// Says how it has ended, in place of where it is. Errors: std::system_error; then it
  /// says neither.
  void tell_end(const std::string& status) const;

 private:
  std::string path_;
  manyworlds::detail::unique_descriptor folder_lock_;
  manyworlds::detail::unique_descriptor lock_;
};

}  // namespace mwgraph
