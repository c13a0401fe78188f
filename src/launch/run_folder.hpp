// Run folder: where the files of a run's workers are.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace manyworlds::inline v0::detail {

/// The files of one start of a worker; empty names where there are none.
struct worker_files {
  std::string output;
  std::string errors;
  std::string record;
};

/// The folder of a run: attempt_N/LOCAL_RANK/{stdout.log,stderr.log,error.json}, as
/// torchrun has it. Nothing in it is ever deleted.
class run_folder {
 public:
  /// Makes a folder for the run within `base`; without one there are no files. Errors:
  /// std::system_error naming the folder.
  run_folder(const std::string& base, const std::string& run_id);

  /// Errors: std::system_error naming the folder that cannot be made.
  [[nodiscard]] worker_files files_of(std::uint64_t attempt, int local_rank,
                                      std::uint64_t incarnation) const;
  /// Returns where it is; empty if there are no files.
  [[nodiscard]] const std::string& path() const noexcept { return path_; }
  /// Precondition: the workers of the attempt have files.
  [[nodiscard]] std::string file_of(std::uint64_t attempt, const std::string& name) const;

 private:
  std::string path_;
};

}  // namespace manyworlds::inline v0::detail
