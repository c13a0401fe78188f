#include "nccl/view_queue.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "nccl/view_checks.hpp"

namespace manyworlds::inline v0::detail::nccl {

namespace {

/// Of looks whether the launching thread has done with a view.
constexpr duration look_interval = std::chrono::microseconds(200);

[[nodiscard]] bool receives(const operation& op) noexcept {
  // An arrival stands among the receives of its lane.
  return op.kind == operation_kind::receive || op.kind == operation_kind::arrival;
}

}  // namespace

std::string view_queue::validate(device_job& job) const {
  const device_launch& l = *job.launch;
  for (std::size_t i = 0; i < l.views.size(); ++i) {
    if (l.views[i].empty()) continue;
    CUstream_st* const stream = l.views[i].stream().handle();
    if (!stream) {
      return fmt::format(
          "view {} has no stream; the default stream's name is cudaStreamLegacy", i);
    }
    if (stream == cudaStreamPerThread && !member_.launches_on_reactor()) {
      return fmt::format(
          "view {}: cudaStreamPerThread would be another stream on the launching thread: "
          "make a stream of your own, or launch on the reactor",
          i);
    }
  }
  // On the reactor only where the reactor is to call NCCL itself.
  return member_.launches_on_reactor() ? validate_views(l.views, l.device)
                                       : std::string();
}

void view_queue::pass(device_job& job) {
  const bool is_known = member_.launches_on_reactor() || known_.has(job.launch->views);
  if (is_known && waiting_.empty()) return office_.go_on(job);
  job.stage = job_stage::checking;
  waiting_.push_back(job.op);
  job.launch->post_check_to(member_.device->launching());
  office_.must_poll();
}

bool view_queue::must_hold(const operation& op) const noexcept {
  const bool sends = op.kind == operation_kind::send;
  if (!sends && !receives(op)) return false;
  return std::any_of(waiting_.begin(), waiting_.end(), [&](const operation* before) {
    if (sends) return before->kind == operation_kind::send && before->on == op.on;
    return receives(*before) &&
           (before->on == op.on || before->takes_fresh_lanes || op.takes_fresh_lanes);
  });
}

bool view_queue::has(const operation& op) const noexcept {
  return std::find(waiting_.begin(), waiting_.end(), &op) != waiting_.end();
}

bool view_queue::withdraw(operation& op) noexcept {
  if (op.device) {
    device_job& job = job_of(op);
    // It ends when CUDA has answered.
    job.is_given_up = !job.launch->give_up_check();
    if (job.is_given_up) return false;
  }
  std::erase(waiting_, &op);
  give_back(op);
  return true;
}

void view_queue::discard(rank_t peer, lane on) {
  const auto is_meant = [&](const operation& op) {
    return op.kind == operation_kind::receive && op.on == on && !op.takes_fresh_lanes &&
           (peer == no_rank || op.peer == peer);
  };
  for (std::size_t i = 0; i < waiting_.size();) {
    operation& op = *waiting_[i];
    if (!is_meant(op)) {
      ++i;
      continue;
    }
    if (op.device && !job_of(op).launch->give_up_check()) {
      job_of(op).is_discarded = true;
      ++i;
      continue;
    }
    waiting_.erase(waiting_.begin() + static_cast<std::ptrdiff_t>(i));
    if (op.device) {
      jobs_.refuse(job_of(op), cause::cancelled, "its lane was discarded");
    } else {
      op.fail(cause::cancelled, "its lane was discarded");
    }
    // What ends may withdraw others.
    i = 0;
  }
}

void view_queue::fail_all(const std::string& why) {
  while (!waiting_.empty()) {
    operation& op = *waiting_.front();
    waiting_.pop_front();
    if (op.device) {
      jobs_.refuse(job_of(op), cause::closed, why);
    } else {
      op.fail(cause::closed, why);
    }
  }
}

bool view_queue::see_answers() noexcept {
  bool any = false;
  while (!member_.is_over && !waiting_.empty()) {
    operation& op = *waiting_.front();
    if (op.device && !job_of(op).launch->is_launched()) break;
    waiting_.pop_front();
    any = true;
    if (op.device) {
      member_.guarded([&] { answered(job_of(op)); });
    } else {
      lanes_.start(op);
    }
  }
  return any;
}

void view_queue::answered(device_job& job) {
  const enum cause why = job.launch->failed_with();
  std::string error = job.launch->error();
  job.launch->clear_outcome();
  if (why == cause::none) known_.add(job.launch->views);
  if (job.is_given_up) {
    operation& op = *job.op;
    give_back(op);
    return op.end(operation_end::withdrawn);
  }
  if (job.is_discarded) {
    return jobs_.refuse(job, cause::cancelled, "its lane was discarded");
  }
  if (why != cause::none) return jobs_.refuse(job, why, std::move(error));
  office_.go_on(job);
}

void view_queue::give_back(const operation& op) noexcept {
  if (op.device) {
    jobs_.abandon(job_of(op));
    if (op.device->group) jobs_.fail_group(*op.device->group);
  }
  if (op.discards && !op.takes_fresh_lanes) lanes_.discard(op.peer, op.on);
}

bool view_queue::give_up() noexcept {
  return std::all_of(waiting_.begin(), waiting_.end(), [](const operation* op) {
    return !op->device || job_of(*op).launch->give_up_check();
  });
}

void view_queue::quiesce(work& quiet) noexcept {
  quiet_ = &quiet;
  const time_point now = member_.home.now();
  quiet_by_ = now + member_.options.device.quiesce;
  member_.home.timers().arm(timer_, now + look_interval);
}

void view_queue::look_again() noexcept {
  const time_point now = member_.home.now();
  if (give_up() || now >= quiet_by_) return std::exchange(quiet_, nullptr)->run();
  member_.home.timers().arm(timer_, now + look_interval);
}

}  // namespace manyworlds::inline v0::detail::nccl
