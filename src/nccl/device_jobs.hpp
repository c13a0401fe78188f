// Device jobs: all operations on device memory that a member has begun.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "nccl/device_job.hpp"
#include "nccl/membership.hpp"

namespace manyworlds::inline v0::detail::nccl {

/// What the other members of a group end with when one could not be started.
inline constexpr const char* group_failed =
    "another operation of the same group could not be started";

/// Owns the jobs and ends their operations, each once (law 1).
///
/// Thread: the world's reactor.
class device_jobs {
 public:
  explicit device_jobs(membership& of) noexcept : member_(of) {}

  /// Returns a job for an operation that begins, with the views and terms that it is
  /// launched with.
  [[nodiscard]] device_job& take(operation& op);

  void finish(device_job& job, operation_end how) noexcept;
  void fail(device_job& job, enum cause why, std::string detail) noexcept;
  /// Gives the operation back to the user: the job goes on without it, if at all.
  void abandon(device_job& job) noexcept;
  /// Keeps a job for another operation if nothing refers to it.
  void recycle(device_job& job) noexcept;

  // A group is launched whole or not at all: without one of its members the others would
  // meet what the peers take for theirs.
  void fail_group(launch_group& group) noexcept;
  void refuse(operation& op, enum cause why, std::string detail) noexcept;
  void refuse(device_job& job, enum cause why, std::string detail) noexcept;
  /// Precondition: the job waits for the rest of its group.
  void leave_group(device_job& job) noexcept;

  /// Returns whether what was begun last about the communicator's memory gives it back.
  [[nodiscard]] bool are_suspended() const noexcept { return are_suspended_; }
  /// Notes that a change of the memory begins.
  void note_change(operation_kind kind) noexcept {
    are_suspended_ = kind == operation_kind::suspend_device;
  }

  [[nodiscard]] bool are_all_over() const noexcept;
  [[nodiscard]] std::span<const std::unique_ptr<device_job>> all() const noexcept {
    return jobs_;
  }

 private:
  void describe(device_job& job) const;

  membership& member_;
  std::vector<std::unique_ptr<device_job>> jobs_;
  device_job* idle_ = nullptr;
  bool are_suspended_ = false;
};

}  // namespace manyworlds::inline v0::detail::nccl
