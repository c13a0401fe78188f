#include "nccl/launch_queue.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "manyworlds/detail/assertion.hpp"
#include "nccl/cuda_library.hpp"
#include "nccl/nccl_library.hpp"

namespace manyworlds::inline v0::detail::nccl {

namespace {

using namespace std::chrono_literals;

constexpr duration longest_nap_of_all = 1ms;
constexpr duration longest_lock = 10s;

[[nodiscard]] bool is_change(const device_job* job) noexcept {
  return changes_memory(job->launch->kind);
}

}  // namespace

void launch_queue::enqueue(device_job& job) {
  if (member_.is_closed_early()) return jobs_.fail(job, cause::closed, closed_early);
  job.stage = job_stage::queued;
  queue_.push_back(&job);
  pump();
}

void launch_queue::enqueue_unmatched(device_job& job) {
  launch_group* const group = job.op->device->group;
  if (!group) return enqueue(job);
  if (group->failed) return jobs_.fail(job, cause::invalid_argument, group_failed);
  job.stage = job_stage::grouped;
  job.next_in_group = static_cast<device_job*>(group->first);
  group->first = &job;
  if (--group->waits_for > 0) return;
  // The list is the last first: it is turned, so that the pairs match in order.
  device_job* first = nullptr;
  for (device_job* at = static_cast<device_job*>(group->first); at;) {
    device_job* const next = at->next_in_group;
    // From here on it can no longer be withdrawn.
    at->stage = job_stage::queued;
    at->next_in_group = first;
    first = at;
    at = next;
  }
  group->first = nullptr;
  enqueue(*first);
}

void launch_queue::hold(std::uint64_t number, device_job& job) {
  job.stage = job_stage::queued;
  [[maybe_unused]] const bool is_new = held_.emplace(number, &job).second;
  MW_ASSERT(is_new, "a place is one operation's");
}

void launch_queue::launch_held(std::uint64_t number, launch_turn turn) noexcept {
  const auto found = held_.find(number);
  // There was no memory to note it, and the world ends.
  if (found == held_.end()) return;
  device_job& job = *found->second;
  held_.erase(found);
  job.launch->turn = std::move(turn);
  member_.guarded([&] { launch(job); });
}

void launch_queue::withdraw(device_job& job) noexcept {
  std::erase(queue_, &job);
  jobs_.abandon(job);
}

void launch_queue::fail_queued(const std::string& why) {
  while (!queue_.empty()) {
    device_job& first = *queue_.front();
    queue_.pop_front();
    for (device_job* each = &first; each;) {
      device_job* const next = std::exchange(each->next_in_group, nullptr);
      jobs_.fail(*each, cause::closed, why);
      each = next;
    }
  }
}

void launch_queue::pump() noexcept {
  const auto most = static_cast<std::size_t>(member_.options.device.most_outstanding);
  while (!queue_.empty() && in_flight_.size() < most && !member_.is_over && !changing_ &&
         communicator_.is_ready()) {
    auto next = queue_.begin();
    // What was matched meanwhile waits for the memory, here as at its peers.
    if (memory_is_away_) {
      next = std::find_if(queue_.begin(), queue_.end(), [](const device_job* each) {
        return each->launch->kind == operation_kind::resume_device;
      });
      if (next == queue_.end()) return;
    }
    device_job& job = **next;
    const bool changes = is_change(&job);
    if (changes && (is_in_flight() || has_held())) return;
    queue_.erase(next);
    member_.guarded([&] { changes ? change_memory(job) : launch(job); });
  }
}

void launch_queue::launch(device_job& job) {
  MW_ASSERT(communicator_.is_ready() && !memory_is_away_,
            "what is launched finds its communicator ready");
  const std::uint64_t number = ++handed_over_;
  const time_point now = member_.home.recently();
  device_launch& first = *job.launch;
  for (device_job* each = &job; each; each = each->next_in_group) {
    device_launch& l = *each->launch;
    l.number = number;
    l.on = communicator_.handle();
    l.stream = communicator_.stream();
    l.gate = communicator_.gate();
    l.completions = communicator_.completions();
    l.collect_streams();
    if (each != &job) {
      first.group.push_back(each->launch);
      first.name = member_.names.of_group();
      first.bytes += l.bytes;
    }
    each->stage = job_stage::handed_over;
    each->is_in_flight = true;
    each->handed_over_at = now;
    if (each->is_given_up) each->settle_by = now + member_.options.host.settle_limit;
    each->op->begun = true;
    in_flight_.push_back(each);
  }
  office_.must_poll();
  if (member_.launches_on_reactor()) {
    const device_scope here(member_.device->ordinal());
    first.run();
  } else {
    first.post_to(member_.device->launching());
  }
}

// It may take long, and other worlds launch meanwhile: on a helper thread.
void launch_queue::change_memory(device_job& job) {
  changing_ = &job;
  job.stage = job_stage::handed_over;
  job.handed_over_at = member_.home.now();
  const auto result = std::make_shared<ncclResult_t>(ncclInternalError);
  change_ = std::make_shared<async_result>(member_.home,
                                           [this, result] { memory_changed(*result); });
  const bool taken = member_.device->helpers().post(
      [on = communicator_.handle(), gate = communicator_.gate(), device = member_.device,
       allowed = member_.options.device.create, done = change_, result,
       name = job.launch->name,
       suspends = job.launch->kind == operation_kind::suspend_device] {
        const device::lifecycle busy(*device, allowed);
        const device_scope here(device->ordinal());
        const nccl_library& nccl = nccl_library::get();
        constexpr int memory = 1;
        if (gate->enter()) {
          const thread_range shown(name, 0);
          *result = suspends ? nccl.ncclCommSuspend(on, memory) : nccl.ncclCommResume(on);
          gate->leave();
        }
        done->give();
      });
  if (!taken) {
    member_.break_world(member_.self, cause::out_of_resources,
                        "no helper thread could be started");
  }
}

void launch_queue::memory_changed(ncclResult_t result) noexcept {
  if (member_.is_over) return;
  device_job& job = *std::exchange(changing_, nullptr);
  if (result != ncclSuccess) {
    return member_.break_world(member_.self, cause::nccl_failed,
                               nccl_library::get().describe(result));
  }
  memory_is_away_ = job.launch->kind == operation_kind::suspend_device;
  jobs_.finish(job, operation_end::done);
  office_.memory_has_changed();
}

bool launch_queue::see_launches() noexcept {
  bool any = false;
  while (!member_.is_over && launches_seen_ < in_flight_.size()) {
    device_job& job = *in_flight_[launches_seen_];
    const device_launch& l = *job.launch;
    if (!l.is_launched()) break;
    ++launches_seen_;
    any = true;
    if (l.failed_with() != cause::none) {
      if (l.failed_with() == cause::device_failed) (void)member_.device->check();
      member_.break_world(member_.self, l.failed_with(), l.error());
      return true;
    }
    device_part& part = *job.op->device;
    part.at = ticket(member_.options.epoch, l.number);
    if (part.enqueued || job.op->kind == operation_kind::native) {
      jobs_.finish(job, operation_end::done);
    }
  }
  return any;
}

// A stream ends its work in order, so the oldest is the first.
bool launch_queue::see_ends() noexcept {
  if (member_.is_over || launches_seen_ == 0) return false;
  reached_ = communicator_.completions()->reached();
  bool any = false;
  while (!member_.is_over && launches_seen_ > 0 &&
         in_flight_.front()->launch->number <= reached_) {
    device_job& job = *in_flight_.front();
    MW_ASSERT(job.is_in_flight && job.launch->is_launched(),
              "a stream ends what was launched, in order");
    in_flight_.pop_front();
    --launches_seen_;
    last_end_ = member_.home.recently();
    any = true;
    job.is_in_flight = false;
    job.next_in_group = nullptr;
    if (job.launch->kind == operation_kind::send) bytes_sent_ += job.bytes_total;
    if (job.launch->kind == operation_kind::receive) bytes_received_ += job.bytes_total;
    if (job.op) {
      jobs_.finish(job, operation_end::done);
    } else {
      jobs_.recycle(job);
    }
  }
  if (any && !settling_.empty()) end_settled();
  return any;
}

duration launch_queue::longest_nap() const noexcept {
  if (launches_seen_ < in_flight_.size()) return shortest_nap;
  if (in_flight_.empty()) return longest_nap_of_all;
  const duration waited = member_.home.now() - in_flight_.front()->handed_over_at;
  return std::clamp(waited / 8, shortest_nap, longest_nap_of_all);
}

void launch_queue::settle(operation& op) {
  const ticket at = op.device->at;
  if (at.epoch() != member_.options.epoch || at.number() > handed_over_) {
    return op.fail(
        cause::invalid_argument,
        fmt::format("the ticket belongs to epoch {}, but this world is epoch {}",
                    at.epoch(), member_.options.epoch));
  }
  if (at.number() <= reached_) return op.end(operation_end::done);
  settling_.push_back(&op);
}

void launch_queue::end_settled() noexcept {
  for (std::size_t i = 0; i < settling_.size() && !member_.is_over;) {
    operation& op = *settling_[i];
    if (op.device->at.number() > reached_) {
      ++i;
      continue;
    }
    settling_.erase(settling_.begin() + static_cast<std::ptrdiff_t>(i));
    op.end(operation_end::done);
    // What ends may withdraw others.
    i = 0;
  }
}

bool launch_queue::has_placeless() const noexcept {
  const auto is_placeless = [](const device_job* each) { return each->is_placeless; };
  return std::any_of(queue_.begin(), queue_.end(), is_placeless) ||
         std::any_of(in_flight_.begin(), in_flight_.end(), is_placeless);
}

bool launch_queue::is_memory_in_doubt() const noexcept {
  return changing_ || memory_is_away_ ||
         std::any_of(queue_.begin(), queue_.end(), is_change);
}

void launch_queue::add_to(device_status& status) const noexcept {
  status.queued = queue_.size() + held_.size();
  status.handed_over = in_flight_.size();
  status.launched = launches_seen_;
  status.awaited = settling_.size();
}

void launch_queue::add_to(transfer_counters& counters) const noexcept {
  counters.bytes_sent += bytes_sent_;
  counters.bytes_received += bytes_received_;
}

void launch_queue::stop() noexcept {
  if (change_) change_->drop();
}

void launch_queue::watch(time_point now) noexcept {
  if (const auto failed = member_.device->check()) {
    return member_.break_world(
        member_.self, cause::device_failed,
        fmt::format("device {} failed ({}): no world of this process can use it again, "
                    "start another process",
                    member_.device->ordinal(), cuda_library::get().describe(*failed)));
  }
  if (!communicator_.is_ready()) return;
  if (const ncclResult_t found = communicator_.poll(); found != ncclSuccess) {
    return member_.break_world(member_.self, cause::nccl_failed,
                               nccl_library::get().describe(found));
  }
  if (changing_ && now - changing_->handed_over_at > member_.options.device.create) {
    return member_.break_world(
        member_.self, cause::nccl_failed,
        "NCCL does not finish suspending or resuming the communicator's memory");
  }
  if (!is_call_stuck(now)) accuse_oldest(now);
}

bool launch_queue::is_call_stuck(time_point now) {
  // As long as another's call holds the driver up NCCL's may wait for that.
  const duration blocked = changing_ ? duration::zero()
                                     : std::min(communicator_.gate()->blocked_for(now),
                                                member_.device->driver_is_free_for(now));
  // Twice the same call: a process that was stopped in its midst is not accused when it
  // goes on.
  const duration before = std::exchange(blocked_before_, blocked);
  // A communicator that is made or freed may hold locks of the driver's for long.
  const device_options& limits = member_.options.device;
  const duration allowed =
      (communicator_.gate()->is_first() ? std::max(limits.create, limits.blocked_call)
                                        : limits.blocked_call) +
      (member_.device->has_lifecycle() ? longest_lock : duration(0));
  if (blocked <= before || before <= allowed) return false;
  member_.break_world(
      member_.self, cause::nccl_failed,
      fmt::format(
          "a call to NCCL has blocked the launching thread for {} ms",
          std::chrono::duration_cast<std::chrono::milliseconds>(blocked).count()));
  return true;
}

void launch_queue::accuse_oldest(time_point now) {
  if (in_flight_.empty()) return;
  const device_job& oldest = *in_flight_.front();
  const duration since = now - std::max(oldest.handed_over_at, last_end_);
  if (since <= member_.options.host.collective_break) return;
  // NVIDIA/nccl issue 783: what one world's stream waits for keeps the connection that
  // another's shares.
  const bool is_alone = member_.device->reserved() <= occupied_by(member_.options.device);
  member_.break_world(
      oldest.peer, cause::stalled,
      fmt::format("{} was launched on the device and does not end{}",
                  name_of(oldest.launch->kind),
                  is_alone ? ""
                           : "; it shares the device with other worlds: is "
                             "CUDA_DEVICE_MAX_CONNECTIONS=32 set, and do all members "
                             "start unmatched operations and graphs in one order?"));
}

}  // namespace manyworlds::inline v0::detail::nccl
