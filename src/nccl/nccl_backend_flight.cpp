// Operations on their way: to the launching thread, to the stream, and back.
#include <fmt/format.h>

#include <algorithm>

#include "cuda_library.hpp"
#include "nccl_backend.hpp"
#include "nccl_library.hpp"

namespace manyworlds::inline v0::nccl {

namespace {

using namespace std::chrono_literals;

constexpr duration check_period = 1ms;
// Asleep it is nobody's task to wake the reactor: a host function on the stream would
// delay the streams of others. So it looks again after an eighth of the time it waits.
constexpr duration shortest_nap = 20us;
constexpr duration longest_nap = 1ms;
constexpr duration longest_lock = 10s;

}  // namespace

void nccl_backend::enqueue(device_job& job) {
  if (never_opens_ && !is_open_) {
    return fail(job, cause::closed, "a member has left before the device was ready");
  }
  job.stage = job_stage::queued;
  queue_.push_back(&job);
  pump();
}

void nccl_backend::pump() noexcept {
  pump_queue();
  take_turns();
}

// What has no place: unmatched, in a world that is alone on its GPUs, or a change of the
// memory.
void nccl_backend::pump_queue() noexcept {
  const auto most = static_cast<std::size_t>(options_.device.most_outstanding);
  while (!queue_.empty() && in_flight_.size() < most && !stopping_ && !changing_ &&
         communicator_->is_ready()) {
    auto next = queue_.begin();
    // What was matched meanwhile waits for the memory, here as at its peers.
    if (memory_is_away_) {
      next = std::find_if(queue_.begin(), queue_.end(), [](const device_job* each) {
        return each->launch->kind == operation_kind::resume_device;
      });
      if (next == queue_.end()) return;
    }
    device_job& job = **next;
    const bool is_change = changes_memory(job.launch->kind);
    if (is_change && !(in_flight_.empty() && places_.decided.empty())) return;
    queue_.erase(next);
    if (is_change) {
      guarded([&] { change_memory(job); });
      continue;
    }
    guarded([&] { hand_over(job); });
  }
}

void nccl_backend::hand_over(device_job& job) {
  const std::uint64_t number = ++handed_over_;
  const time_point now = home_.recently();
  device_launch& first = *job.launch;
  for (device_job* each = &job; each; each = each->next_in_group) {
    device_launch& l = *each->launch;
    l.number = number;
    l.on = communicator_->handle();
    l.stream = communicator_->stream();
    l.gate = communicator_->gate();
    l.completions = communicator_->completions();
    l.collect_streams();
    if (each != &job) {
      first.group.push_back(each->launch);
      first.name = names_.of_group();
      first.bytes += l.bytes;
    }
    each->stage = job_stage::handed_over;
    each->is_in_flight = true;
    each->handed_over_at = now;
    if (each->is_given_up) each->settle_by = now + options_.host.settle_limit;
    if (each->op) each->op->begun = true;
    in_flight_.push_back(each);
  }
  start_polling();
  if (options_.device.launch == launch_on::own_thread) {
    first.post_to(device_->launching());
  } else {
    const device_scope here(device_->ordinal());
    first.run();
  }
}

void nccl_backend::start_polling() noexcept {
  if (std::exchange(is_polling_, true)) return;
  home_.add(*this);
}

bool nccl_backend::poll() noexcept {
  bool any = see_checks();
  if (!stopping_ && !own_orders_.empty()) guarded([&] { any |= hear_own_orders(); });
  if (!stopping_) any |= see_launches();
  if (!stopping_) any |= see_ends();
  if (stopping_) return any;
  const time_point now = home_.recently();
  if (now - last_check_ >= check_period) {
    last_check_ = now;
    watch_communicator(home_.now());
  }
  pump();
  if (in_flight_.empty() && checking_.empty() && own_orders_.empty() && is_polling_) {
    is_polling_ = false;
    home_.remove(*this);
  }
  go_if_idle();
  return any;
}

// It may take long, and other worlds launch meanwhile: on a helper thread.
void nccl_backend::change_memory(device_job& job) {
  changing_ = &job;
  job.stage = job_stage::handed_over;
  job.handed_over_at = home_.now();
  const auto result = std::make_shared<ncclResult_t>(ncclInternalError);
  change_ = std::make_shared<answer>(home_, [this, result] { memory_changed(*result); });
  const bool taken = device_->helpers().post(
      [on = communicator_->handle(), gate = communicator_->gate(), device = device_,
       allowed = options_.device.create, answer = change_, result,
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
        answer->give();
      });
  if (!taken) break_world(self_, cause::out_of_resources, "no thread can be had");
}

void nccl_backend::memory_changed(ncclResult_t result) noexcept {
  if (stopping_) return;
  device_job& job = *std::exchange(changing_, nullptr);
  if (result != ncclSuccess) {
    return break_world(self_, cause::nccl_failed, nccl_library::get().describe(result));
  }
  memory_is_away_ = job.launch->kind == operation_kind::suspend_device;
  if (job.op) {
    finish(job, operation_end::done);
  } else {
    recycle(job);
  }
  guarded([this] { answer_proposals(); });
  pump();
  go_if_idle();
}

bool nccl_backend::see_launches() noexcept {
  bool any = false;
  while (!stopping_ && launches_seen_ < in_flight_.size()) {
    device_job& job = *in_flight_[launches_seen_];
    const device_launch& l = *job.launch;
    if (!l.is_launched()) break;
    ++launches_seen_;
    any = true;
    if (l.failed_with() != cause::none) {
      if (l.failed_with() == cause::device_failed) (void)device_->check();
      break_world(self_, l.failed_with(), l.error());
      return true;
    }
    if (!job.op) continue;
    device_part& part = *job.op->device;
    part.at = ticket(options_.epoch, l.number);
    if (part.enqueued || job.op->kind == operation_kind::native) {
      finish(job, operation_end::done);
    }
  }
  return any;
}

// A stream ends its work in order, so the oldest is the first.
bool nccl_backend::see_ends() noexcept {
  if (launches_seen_ == 0) return false;
  reached_ = communicator_->completions()->reached();
  bool any = false;
  while (!stopping_ && launches_seen_ > 0 &&
         in_flight_.front()->launch->number <= reached_) {
    device_job& job = *in_flight_.front();
    in_flight_.pop_front();
    --launches_seen_;
    last_end_ = home_.recently();
    any = true;
    job.is_in_flight = false;
    job.next_in_group = nullptr;
    const bool sends = job.launch->kind == operation_kind::send;
    const bool receives = job.launch->kind == operation_kind::receive;
    if (sends) device_counters_.bytes_sent += job.bytes_total;
    if (receives) device_counters_.bytes_received += job.bytes_total;
    if (job.op) {
      finish(job, operation_end::done);
    } else {
      recycle(job);
    }
  }
  if (any && !wait_for_ticket_.empty()) end_settled();
  if (any && !places_.is_orderly && !stopping_) guarded([this] { note_orderly(); });
  return any;
}

void nccl_backend::end_settled() noexcept {
  for (std::size_t i = 0; i < wait_for_ticket_.size() && !stopping_;) {
    operation& op = *wait_for_ticket_[i];
    if (op.device->at.number() > reached_) {
      ++i;
      continue;
    }
    wait_for_ticket_.erase(wait_for_ticket_.begin() + static_cast<std::ptrdiff_t>(i));
    op.end(operation_end::done);
    i = 0;
  }
}

bool nccl_backend::prepare_sleep(std::optional<duration>& limit) noexcept {
  duration nap = longest_nap;
  if (!stopping_) {
    if (launches_seen_ < in_flight_.size() || !checking_.empty()) {
      nap = shortest_nap;
    } else if (!in_flight_.empty()) {
      const duration waited = home_.now() - in_flight_.front()->handed_over_at;
      nap = std::clamp(waited / 8, shortest_nap, longest_nap);
    }
  }
  if (!limit || *limit > nap) limit = nap;
  return true;
}

void nccl_backend::watch() noexcept {
  const time_point now = home_.now();
  home_.timers().arm(watch_, now + watch_period);
  if (!stopping_) watch_communicator(now);
  if (!stopping_) watch_members(now);
  if (!stopping_) watch_order(now);
}

void nccl_backend::watch_communicator(time_point now) noexcept {
  if (const auto failed = device_->check()) {
    return break_world(
        self_, cause::device_failed,
        fmt::format("device {}: {}: no world of this process can use it "
                    "any more, start another process",
                    device_->ordinal(), cuda_library::get().describe(*failed)));
  }
  if (!communicator_->is_ready()) return;
  if (const ncclResult_t found = communicator_->look(); found != ncclSuccess) {
    return break_world(self_, cause::nccl_failed, nccl_library::get().describe(found));
  }
  if (changing_ && now - changing_->handed_over_at > options_.device.create) {
    return break_world(
        self_, cause::nccl_failed,
        "giving the communicator's memory back, or taking it, does not end");
  }
  // As long as another's call holds the driver up NCCL's may wait for that.
  const duration blocked = changing_ ? duration::zero()
                                     : std::min(communicator_->gate()->blocked_for(now),
                                                device_->driver_is_free_for(now));
  // Twice the same call: a process that was stopped in its midst is not accused when it
  // goes on.
  const duration before = std::exchange(blocked_before_, blocked);
  // A communicator that is made or freed may hold locks of the driver's for long.
  const device_options& limits = options_.device;
  const duration allowed =
      (communicator_->gate()->is_first() ? std::max(limits.create, limits.blocked_call)
                                         : limits.blocked_call) +
      (device_->has_lifecycle() ? longest_lock : duration(0));
  if (blocked > before && before > allowed) {
    return break_world(
        self_, cause::nccl_failed,
        fmt::format(
            "a call of NCCL's has blocked the launching thread for {} ms",
            std::chrono::duration_cast<std::chrono::milliseconds>(blocked).count()));
  }
  if (in_flight_.empty()) return;
  const device_job& oldest = *in_flight_.front();
  if (now - std::max(oldest.handed_over_at, last_end_) > options_.host.collective_break) {
    // NVIDIA/nccl issue 783: what one world's stream waits for keeps the connection that
    // another's shares.
    const bool is_alone = device_->reserved() <= occupied_by(options_.device);
    break_world(
        oldest.peer, cause::stalled,
        fmt::format("{} was launched and does not end{}", name_of(oldest.launch->kind),
                    is_alone ? ""
                             : "; it shares the device with other worlds: is "
                               "CUDA_DEVICE_MAX_CONNECTIONS=32 set, and do all members "
                               "start unmatched operations and graphs in one order?"));
  }
}

void nccl_backend::watch_members(time_point now) noexcept {
  for (const auto& job : jobs_) {
    if (!job->op || job->settle_by > now) continue;
    return break_world(job->peer, cause::stalled,
                       "a transfer that was given up does not end");
  }
  if (!leader_) return;
  collective_table& table = leader_->collectives();
  if (const auto* late = table.oldest(now, options_.host.collective_log)) {
    std::string absent;
    for (const rank_t r : late->absent) {
      absent += fmt::format("{}{}", absent.empty() ? "" : ", ", r);
    }
    const std::string text = fmt::format(
        "{}: absent after {} s: rank {}", late->terms.text(),
        std::chrono::duration_cast<std::chrono::seconds>(late->since).count(), absent);
    if (late->since >= options_.host.collective_break) {
      return break_world(late->absent.empty() ? no_rank : late->absent.front(),
                         cause::overdue, text);
    }
    if (!late->is_remarked) {
      table.set_remarked();
      events_.remark(text);
    }
  }
}

}  // namespace manyworlds::inline v0::nccl
