// Device job: one operation on device memory, from its start until the stream is done
// with it.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>

#include "manyworlds/detail/device_part.hpp"
#include "manyworlds/detail/operation.hpp"
#include "nccl/device_launch.hpp"

namespace manyworlds::inline v0::detail::nccl {

class matcher;

enum class job_stage : std::uint8_t {
  checking,     ///< its views are looked at
  parked,       ///< its announcement, or its wait for one, stands in the host backend
  matched,      ///< waits for its place in the order
  entered,      ///< a collective that waits for the other members
  grouped,      ///< waits for the rest of its group
  queued,       ///< will be handed over when there is room
  handed_over,  ///< the launching thread, or the stream, has it
};

/// Thread: the world's reactor. Lifetime: `device_jobs` keeps it and uses it again.
class device_job {
 public:
  /// Stands for the operation in the host backend while it is matched there.
  struct proxy final : operation {
    proxy(device_job& job, matcher& by, operation_kind kind,
          ended_function ended) noexcept
        : operation(kind, ended), of(job), matched_by(by) {}
    device_job& of;
    matcher& matched_by;
  };

  /// Returns whether nothing refers to it.
  [[nodiscard]] bool is_over() const noexcept {
    return !op && !proxy_runs && !is_in_flight;
  }

  /// The user's operation; null once that has ended.
  operation* op = nullptr;
  job_stage stage = job_stage::queued;

  std::optional<proxy> stand_in;
  bool proxy_runs = false;
  device_payload far;
  bytes description;
  const_buffer_view text;  ///< of the description

  rank_t peer = no_rank;
  std::uint64_t bytes_total = 0;
  payload_layout layout;    ///< of its own views
  std::uint64_t token = 0;  ///< of point-to-point, the sender's number for it
  /// It was given up and could not be withdrawn: it must have ended by `settle_by`.
  bool is_given_up = false;
  bool is_placeless = false;  ///< matched, and launched without a place in the order
  bool is_discarded = false;  ///< its lane was, while its views were looked at
  time_point settle_by = time_point::max();

  std::shared_ptr<device_launch> launch = std::make_shared<device_launch>();
  bool is_in_flight = false;
  operation_range shown;
  time_point handed_over_at{};

  device_job* next_idle = nullptr;
  device_job* next_in_group = nullptr;
};

/// Precondition: its job was taken and the operation has not ended.
[[nodiscard]] inline device_job& job_of(const operation& op) noexcept {
  return *static_cast<device_job*>(op.device->state);
}

}  // namespace manyworlds::inline v0::detail::nccl
