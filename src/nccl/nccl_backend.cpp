#include "nccl_backend.hpp"

#include <algorithm>

namespace manyworlds::inline v0::nccl {

nccl_backend::nccl_backend(reactor& home, backend_events& events,
                           nccl_backend_options options, rank_t self,
                           std::vector<data_channel> connections,
                           std::shared_ptr<nccl::device> on)
    : home_(home),
      events_(events),
      options_(std::move(options)),
      self_(self),
      size_(static_cast<rank_t>(connections.size())),
      device_(std::move(on)),
      communicator_(std::make_unique<communicator>(device_, home, options_.device,
                                                   options_.name, options_.epoch)),
      names_(options_.name, options_.epoch),
      left_(connections.size()),
      hellos_(connections.size()),
      host_(home, *this, options_.host, self, std::move(connections)) {
  if (self_ == 0) leader_.emplace(size_, static_cast<launch_leader::office&>(*this));
  home_.timers().arm(watch_, home_.now() + watch_period);
  guarded([this] { make_communicator(); });
}

nccl_backend::~nccl_backend() {
  home_.timers().disarm(watch_);
  home_.timers().disarm(ending_timer_);
  home_.timers().disarm(checks_timer_);
  if (is_polling_) home_.remove(*this);
  leave_order();
}

void nccl_backend::break_world(rank_t rank, enum cause why, std::string detail) noexcept {
  if (!stopping_) events_.must_break(rank, why, std::move(detail));
}

void nccl_backend::start(operation& op) noexcept {
  if (!op.device) {
    if (!must_wait_for_checks(op)) return host_.start(op);
    return guarded([&] { checking_.push_back(&op); });
  }
  op.info = {};
  guarded([&] { begin(op); });
}

bool nccl_backend::withdraw(operation& op) noexcept {
  if (std::find(checking_.begin(), checking_.end(), &op) != checking_.end()) {
    return withdraw_checked(op);
  }
  if (!op.device) return host_.withdraw(op);
  if (std::erase(wait_for_device_, &op) > 0) {
    if (op.device->group) guarded([&] { fail_group(*op.device->group); });
    return true;
  }
  if (op.kind == operation_kind::settle) {
    std::erase(wait_for_ticket_, &op);
    return true;
  }
  device_job& job = *job_of(op);
  if (job.stage == job_stage::parked && host_.withdraw(*job.stand_in)) {
    job.proxy_runs = false;
    announced_.erase(job.token);
    job.op = nullptr;
    recycle(job);
    return true;
  }
  if (op.kind == operation_kind::native && job.stage == job_stage::queued) {
    std::erase(queue_, &job);
    job.op = nullptr;
    recycle(job);
    return true;
  }
  if (job.stage == job_stage::grouped) {
    launch_group& group = *op.device->group;
    auto** at = reinterpret_cast<device_job**>(&group.first);
    while (*at != &job) at = &(*at)->next_in_group;
    *at = std::exchange(job.next_in_group, nullptr);
    job.op = nullptr;
    recycle(job);
    guarded([&] { fail_group(group); });
    return true;
  }
  // The peer counts on it, or has not said yet whether it does. How long it may take
  // counts from its launch: until then others are in front of it.
  job.is_given_up = true;
  if (job.stage == job_stage::handed_over) {
    job.settle_by = home_.now() + options_.host.settle_limit;
  }
  return false;
}

bool nccl_backend::withdraw_checked(operation& op) noexcept {
  if (op.device) {
    device_job& job = *job_of(op);
    // It ends when CUDA has answered.
    job.is_given_up = !job.launch->give_up_check();
    if (job.is_given_up) return false;
    job.op = nullptr;
    recycle(job);
    if (op.device->group) guarded([&] { fail_group(*op.device->group); });
  }
  std::erase(checking_, &op);
  if (op.discards && !op.takes_fresh_lanes) host_.discard(op.peer, op.on);
  return true;
}

void nccl_backend::discard(rank_t peer, lane on) noexcept {
  guarded([&] { discard_checked(peer, on); });
  host_.discard(peer, on);
}

// As the host backend does with those that are posted.
void nccl_backend::discard_checked(rank_t peer, lane on) {
  const auto is_meant = [&](const operation& op) {
    return op.kind == operation_kind::receive && op.on == on && !op.takes_fresh_lanes &&
           (peer == no_rank || op.peer == peer);
  };
  for (std::size_t i = 0; i < checking_.size();) {
    operation& op = *checking_[i];
    if (!is_meant(op)) {
      ++i;
      continue;
    }
    if (op.device && !job_of(op)->launch->give_up_check()) {
      job_of(op)->is_discarded = true;
      ++i;
      continue;
    }
    checking_.erase(checking_.begin() + static_cast<std::ptrdiff_t>(i));
    if (op.device) {
      refuse(*job_of(op), cause::cancelled, "its lane was discarded");
    } else {
      op.fail(cause::cancelled, "its lane was discarded");
    }
    // A task that was resumed may have changed all of it.
    i = 0;
  }
}

void nccl_backend::finish(device_job& job, operation_end how) noexcept {
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

void nccl_backend::fail(device_job& job, enum cause why, std::string detail) noexcept {
  operation& op = *std::exchange(job.op, nullptr);
  // It was not to be: what it says of the memory is as before.
  if (changes_memory(op.kind)) {
    is_suspended_ = op.kind == operation_kind::resume_device;
  }
  recycle(job);
  op.fail(why, std::move(detail));
}

void nccl_backend::recycle(device_job& job) noexcept {
  if (!job.is_over()) return;
  job.shown.end();
  job.next_idle = idle_;
  idle_ = &job;
}

std::vector<undelivered_messages> nccl_backend::undelivered() const {
  std::vector<undelivered_messages> all = host_.undelivered();
  std::erase_if(all, [](const undelivered_messages& u) { return u.on == order_lane; });
  return all;
}

std::vector<lane_status> nccl_backend::lanes() const {
  std::vector<lane_status> all = host_.lanes();
  std::erase_if(all, [](const lane_status& l) { return l.on == order_lane; });
  return all;
}

transfer_counters nccl_backend::counters() const noexcept {
  transfer_counters all = host_.counters();
  all.bytes_sent += device_counters_.bytes_sent;
  all.bytes_received += device_counters_.bytes_received;
  return all;
}

const char* nccl_backend::transport() const noexcept {
  const std::string_view links = host_.transport();
  if (links == "shm") return "nccl, shm";
  return links == "tcp" ? "nccl, tcp" : "nccl, shm and tcp";
}

}  // namespace manyworlds::inline v0::nccl
