// How operations begin: checked, and announced to whom they concern.
#include <fmt/format.h>

#include <algorithm>
#include <stdexcept>

#include "argument_checks.hpp"
#include "nccl_backend.hpp"
#include "view_checks.hpp"

namespace manyworlds::inline v0::nccl {

namespace {

constexpr const char* no_order =
    "rank 0 has left, which puts operations on devices in order";
constexpr const char* no_group = "another operation of its group could not be started";

}  // namespace

void nccl_backend::refuse(operation& op, enum cause why, std::string detail) {
  if (launch_group* const group = op.device->group) fail_group(*group);
  op.fail(why, std::move(detail));
}

// Launched without one of its members, the others would meet what the peers take for
// theirs.
void nccl_backend::fail_group(launch_group& group) {
  group.failed = true;
  auto* member = static_cast<device_job*>(std::exchange(group.first, nullptr));
  while (member) {
    device_job* const next = std::exchange(member->next_in_group, nullptr);
    fail(*member, cause::invalid_argument, no_group);
    member = next;
  }
}

void nccl_backend::begin(operation& op) {
  device_part& part = *op.device;
  part.state = nullptr;
  const bool has_lane = is_message(op.kind);
  // The others come to no harm by waiting here, where they can still be checked and
  // withdrawn; a message must not be overtaken by one from host memory behind it.
  if (never_opens_ && !is_open_) {
    return refuse(op, cause::closed, "a member has left before the device was ready");
  }
  if ((!has_lane || part.unmatched) && !is_open_) {
    wait_for_device_.push_back(&op);
    return;
  }
  switch (op.kind) {
    case operation_kind::device_ready:
      part.costs = communicator_->costs();
      return op.end(operation_end::done);
    case operation_kind::settle:
      return begin_settle(op);
    default:
      break;
  }
  if (part.group && part.group->failed) {
    return op.fail(cause::invalid_argument, no_group);
  }
  if (std::string wrong = objection_to(op, self_, size_); !wrong.empty()) {
    return refuse(op, cause::invalid_argument, std::move(wrong));
  }
  if (std::string missing = missing_for(op, size_, creation_.capability);
      !missing.empty()) {
    return refuse(op, cause::unsupported, std::move(missing));
  }
  if (is_suspended_ != (op.kind == operation_kind::resume_device)) {
    return refuse(op, cause::invalid_argument,
                  is_suspended_ ? "the device is suspended: resume_device() first"
                                : "the device is not suspended");
  }
  if (gone_) return refuse(op, cause::closed, "this member has left");
  const bool needs_order =
      op.kind != operation_kind::native && (!part.unmatched || changes_memory(op.kind));
  if (needs_order && left_[0]) {
    return refuse(op, cause::closed, no_order);
  }
  payload_layout layout;
  if (has_lane && needs_order) {
    try {
      layout = op.kind == operation_kind::send ? payload_layout(part.source)
                                               : payload_layout(part.target);
    } catch (const std::invalid_argument& e) {
      return refuse(op, cause::invalid_argument, e.what());
    }
  }
  device_job& job = job_for(op);
  job.layout = std::move(layout);
  take_views(job);
  job.launch->name = names_.of(op.kind);
  job.launch->bytes = job.bytes_total;
  job.shown.begin(job.launch->name, job.bytes_total);
  if (std::string wrong = objection_to_views(job); !wrong.empty()) {
    return refuse(job, cause::invalid_argument, std::move(wrong));
  }
  if (changes_memory(op.kind)) {
    is_suspended_ = op.kind == operation_kind::suspend_device;
  }
  if (!must_be_checked(job) && checking_.empty()) return go_on(job);
  check_elsewhere(job);
}

std::string nccl_backend::objection_to_views(device_job& job) const {
  device_launch& l = *job.launch;
  for (std::size_t i = 0; i < l.views.size(); ++i) {
    if (l.views[i].empty()) continue;
    CUstream_st* const stream = l.views[i].stream().handle();
    if (!stream) {
      return fmt::format(
          "view {}: it has no stream; the default stream's name is "
          "cudaStreamLegacy",
          i);
    }
    if (stream == cudaStreamPerThread &&
        options_.device.launch == launch_on::own_thread) {
      return fmt::format(
          "view {}: cudaStreamPerThread is another stream on the thread "
          "that launches: make one, or launch on the reactor",
          i);
    }
  }
  l.device = device_->ordinal();
  // On the reactor only where the reactor is to call NCCL itself.
  const bool may_ask = options_.device.launch == launch_on::reactor;
  return may_ask ? nccl::objection_to_views(l.views, l.device) : std::string();
}

bool nccl_backend::must_be_checked(const device_job& job) const noexcept {
  return options_.device.launch == launch_on::own_thread &&
         !known_.has(job.launch->views);
}

void nccl_backend::refuse(device_job& job, enum cause why, std::string detail) {
  if (launch_group* const group = job.op->device->group) fail_group(*group);
  fail(job, why, std::move(detail));
}

void nccl_backend::go_on(device_job& job) {
  const operation& op = *job.op;
  // Members may have left while its views were checked.
  if (never_opens_ && !is_open_) {
    return refuse(job, cause::closed, "a member has left before the device was ready");
  }
  if (gone_ && op.kind == operation_kind::receive) {
    return refuse(job, cause::closed, "this member has left");
  }
  if (op.kind == operation_kind::native ||
      (op.device->unmatched && !changes_memory(op.kind))) {
    return begin_unmatched(job);
  }
  if (op.kind == operation_kind::send) return begin_send(job);
  if (op.kind == operation_kind::receive) return begin_receive(job);
  begin_collective(job);
}

// Views that CUDA has not been asked about yet are checked by the launching thread, which
// may wait for the driver's locks. That is before the operation is announced: found wrong
// only at its launch, it would break the world. Later operations wait behind it, law 5.
void nccl_backend::check_elsewhere(device_job& job) {
  job.stage = job_stage::checking;
  checking_.push_back(job.op);
  job.launch->post_check_to(device_->launching());
  start_polling();
}

bool nccl_backend::must_wait_for_checks(const operation& op) const noexcept {
  const bool sends = op.kind == operation_kind::send;
  // An arrival stands among the receives of its lane.
  const bool receives =
      op.kind == operation_kind::receive || op.kind == operation_kind::arrival;
  if (!sends && !receives) return false;
  return std::any_of(checking_.begin(), checking_.end(), [&](const operation* before) {
    if (sends) return before->kind == operation_kind::send && before->on == op.on;
    const bool is_one = before->kind == operation_kind::receive ||
                        before->kind == operation_kind::arrival;
    return is_one &&
           (before->on == op.on || before->takes_fresh_lanes || op.takes_fresh_lanes);
  });
}

bool nccl_backend::give_up_checks() noexcept {
  return std::all_of(checking_.begin(), checking_.end(), [](const operation* op) {
    return !op->device || job_of(*op)->launch->give_up_check();
  });
}

void nccl_backend::end_given_up(device_job& job) {
  operation& op = *std::exchange(job.op, nullptr);
  recycle(job);
  if (op.device->group) fail_group(*op.device->group);
  if (op.discards && !op.takes_fresh_lanes) host_.discard(op.peer, op.on);
  op.end(operation_end::withdrawn);
}

void nccl_backend::fail_checking(const std::string& why) {
  while (!checking_.empty()) {
    operation& op = *checking_.front();
    checking_.pop_front();
    if (op.device) {
      refuse(*job_of(op), cause::closed, why);
    } else {
      op.fail(cause::closed, why);
    }
  }
}

bool nccl_backend::see_checks() noexcept {
  bool any = false;
  while (!stopping_ && !checking_.empty()) {
    operation& op = *checking_.front();
    if (op.device && !job_of(op)->launch->is_launched()) break;
    checking_.pop_front();
    any = true;
    if (!op.device) {
      host_.start(op);
      continue;
    }
    device_job& job = *job_of(op);
    const enum cause why = job.launch->failed_with();
    std::string error = job.launch->error();
    job.launch->clear_outcome();
    if (why == cause::none) known_.add(job.launch->views);
    guarded([&] {
      if (job.is_given_up) {
        end_given_up(job);
      } else if (job.is_discarded) {
        refuse(job, cause::cancelled, "its lane was discarded");
      } else if (why == cause::none) {
        go_on(job);
      } else {
        refuse(job, why, std::move(error));
      }
    });
  }
  return any;
}

device_job& nccl_backend::job_for(operation& op) {
  device_job* job = idle_;
  if (job) {
    idle_ = std::exchange(job->next_idle, nullptr);
  } else {
    jobs_.push_back(std::make_unique<device_job>(*this));
    job = jobs_.back().get();
  }
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
  return *job;
}

void nccl_backend::take_views(device_job& job) {
  const device_part& part = *job.op->device;
  device_launch& l = *job.launch;
  job.bytes_total = 0;
  l.kind = job.op->kind;
  l.self = self_;
  l.size = size_;
  l.peer = job.op->peer;
  if (l.kind == operation_kind::native) {
    l.call = part.call;
    l.context = part.context;
    return;
  }
  if (is_collective(l.kind)) {
    l.terms = terms_of(*job.op, size_);
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

device_job::proxy& nccl_backend::stand_in_for(device_job& job) {
  const operation& op = *job.op;
  job.stand_in.emplace(job, op.kind, [](operation& p, operation_end how) noexcept {
    device_job& j = static_cast<device_job::proxy&>(p).of;
    j.owner.proxy_ended(j, how);
  });
  device_job::proxy& proxy = *job.stand_in;
  proxy.peer = op.peer;
  proxy.on = op.on;
  proxy.discards = op.discards;
  proxy.elsewhere = &job.far;
  job.proxy_runs = true;
  return proxy;
}

void nccl_backend::begin_send(device_job& job) {
  operation& op = *job.op;
  job.token = ++last_token_;
  job.description = encode(send_description{job.token, job.layout}, job.bytes_total,
                           op.device->source.type());
  job.stage = job_stage::parked;
  announced_[job.token] = &job;
  device_job::proxy& proxy = stand_in_for(job);
  proxy.user = op.user;
  proxy.head = op.head;
  proxy.head_bytes = op.head_bytes;
  proxy.delivered = true;
  job.text =
      const_buffer_view(job.description.data(), job.description.size(), dtype::uint8);
  proxy.source = const_view_list(std::span<const const_buffer_view>(&job.text, 1));
  host_.start(proxy);
}

void nccl_backend::begin_receive(device_job& job) {
  operation& op = *job.op;
  job.stage = job_stage::parked;
  job.far.bytes = job.bytes_total;
  job.far.type = op.device->target.type();
  device_job::proxy& proxy = stand_in_for(job);
  host_.start(proxy);
}

void nccl_backend::begin_collective(device_job& job) {
  if (left_[0]) return fail(job, cause::closed, no_order);
  job.stage = job_stage::entered;
  job.collective = ++last_collective_;
  entered_[job.collective] = &job;
  const collective_terms terms = job.launch->terms;
  if (self_ == 0) return leader_->enter(0, job.collective, terms, home_.now());
  say(0, enter_message{job.collective, terms});
}

void nccl_backend::begin_unmatched(device_job& job) {
  launch_group* const group = job.op->device->group;
  if (!group) return enqueue(job);
  if (group->failed) return fail(job, cause::invalid_argument, no_group);
  job.stage = job_stage::grouped;
  job.next_in_group = static_cast<device_job*>(group->first);
  group->first = &job;
  if (--group->waits_for > 0) return;
  // The list is the last first: it is turned, so that the pairs match in order.
  device_job* first = nullptr;
  for (device_job* at = static_cast<device_job*>(group->first); at;) {
    device_job* const next = at->next_in_group;
    // From here on nobody takes it out any more.
    at->stage = job_stage::queued;
    at->next_in_group = first;
    first = at;
    at = next;
  }
  group->first = nullptr;
  enqueue(*first);
}

void nccl_backend::begin_settle(operation& op) {
  const ticket at = op.device->at;
  if (at.epoch() != options_.epoch || at.number() > handed_over_) {
    return op.fail(cause::invalid_argument,
                   fmt::format("the ticket is of epoch {}, this is epoch {}", at.epoch(),
                               options_.epoch));
  }
  if (at.number() <= reached_) return op.end(operation_end::done);
  wait_for_ticket_.push_back(&op);
}

}  // namespace manyworlds::inline v0::nccl
