#include "nccl/device_jobs.hpp"

#include <algorithm>
#include <utility>

#include "manyworlds/detail/assertion.hpp"
#include "nccl/argument_checks.hpp"

namespace manyworlds::inline v0::detail::nccl {

device_job& device_jobs::take(operation& op) {
  device_job* job = idle_;
  if (job) {
    idle_ = std::exchange(job->next_idle, nullptr);
  } else {
    jobs_.push_back(std::make_unique<device_job>());
    job = jobs_.back().get();
  }
  MW_ASSERT(job->is_over(), "a job serves one operation at a time");
  job->op = &op;
  job->peer = op.peer;
  job->settle_by = time_point::max();
  job->is_given_up = false;
  job->is_discarded = false;
  job->is_placeless = false;
  job->stand_in.reset();
  // A thread that came back late may still hold the old one, and one that was given up
  // while it was checked may still be looked at.
  if (!job->launch->may_be_reset() || job->launch.use_count() != 1) {
    job->launch = std::make_shared<device_launch>();
  }
  job->launch->reset();
  op.device->state = job;
  describe(*job);
  return *job;
}

void device_jobs::describe(device_job& job) const {
  const device_part& part = *job.op->device;
  device_launch& l = *job.launch;
  job.bytes_total = 0;
  l.kind = job.op->kind;
  l.self = member_.self;
  l.size = member_.size;
  l.peer = job.op->peer;
  l.device = member_.device->ordinal();
  if (l.kind == operation_kind::native) {
    l.call = part.call;
    l.context = part.context;
    return;
  }
  if (is_collective(l.kind)) {
    l.terms = terms_of(*job.op, member_.size);
    if (changes_memory(l.kind)) return;
    l.views.push_back(part.source[0]);
    l.views.push_back(part.target[0]);
  } else if (l.kind == operation_kind::send) {
    for (std::size_t i = 0; i < part.source.size(); ++i)
      l.views.push_back(part.source[i]);
  } else {
    for (std::size_t i = 0; i < part.target.size(); ++i)
      l.views.push_back(part.target[i]);
  }
  for (const const_device_view& v : l.views) job.bytes_total += v.size_bytes();
}

void device_jobs::finish(device_job& job, operation_end how) noexcept {
  MW_ASSERT(job.op && job.op->device->state == &job, "an operation ends once (law 1)");
  operation& op = *std::exchange(job.op, nullptr);
  if (how == operation_end::done) {
    if (op.kind == operation_kind::receive) {
      if (job.stand_in) {
        op.info = job.stand_in->info;
      } else {
        op.info.source = job.peer;
        op.info.type = op.device->target.type();
        op.info.bytes = job.bytes_total;
        op.info.count = op.device->target.count();
        op.info.on_device = true;
      }
    }
    op.bytes_moved = job.bytes_total;
    op.device->thrown = job.launch->thrown();
  }
  recycle(job);
  op.end(how);
}

void device_jobs::fail(device_job& job, enum cause why, std::string detail) noexcept {
  MW_ASSERT(job.op && job.op->device->state == &job, "an operation ends once (law 1)");
  operation& op = *std::exchange(job.op, nullptr);
  // It was not to be: what is known of the memory is as before.
  if (changes_memory(op.kind)) {
    are_suspended_ = op.kind == operation_kind::resume_device;
  }
  recycle(job);
  op.fail(why, std::move(detail));
}

void device_jobs::abandon(device_job& job) noexcept {
  job.op = nullptr;
  recycle(job);
}

void device_jobs::recycle(device_job& job) noexcept {
  if (!job.is_over()) return;
  job.shown.end();
  job.next_idle = idle_;
  idle_ = &job;
}

void device_jobs::fail_group(launch_group& group) noexcept {
  group.failed = true;
  auto* each = static_cast<device_job*>(std::exchange(group.first, nullptr));
  while (each) {
    device_job& job = *each;
    each = std::exchange(job.next_in_group, nullptr);
    member_.guarded([&] { fail(job, cause::invalid_argument, group_failed); });
  }
}

void device_jobs::refuse(operation& op, enum cause why, std::string detail) noexcept {
  if (launch_group* const group = op.device->group) fail_group(*group);
  op.fail(why, std::move(detail));
}

void device_jobs::refuse(device_job& job, enum cause why, std::string detail) noexcept {
  if (launch_group* const group = job.op->device->group) fail_group(*group);
  fail(job, why, std::move(detail));
}

void device_jobs::leave_group(device_job& job) noexcept {
  launch_group& group = *job.op->device->group;
  auto** at = reinterpret_cast<device_job**>(&group.first);
  while (*at != &job) at = &(*at)->next_in_group;
  *at = std::exchange(job.next_in_group, nullptr);
  abandon(job);
  fail_group(group);
}

bool device_jobs::are_all_over() const noexcept {
  return std::none_of(jobs_.begin(), jobs_.end(),
                      [](const auto& job) { return job->op || job->is_in_flight; });
}

}  // namespace manyworlds::inline v0::detail::nccl
