#include "nccl/matcher.hpp"

#include <fmt/format.h>

#include "manyworlds/detail/assertion.hpp"

namespace manyworlds::inline v0::detail::nccl {

void matcher::begin(device_job& job) {
  if (job.op->kind == operation_kind::send) return begin_send(job);
  if (job.op->kind == operation_kind::receive) return begin_receive(job);
  begin_collective(job);
}

void matcher::begin_send(device_job& job) {
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
  lanes_.start(proxy);
}

void matcher::begin_receive(device_job& job) {
  job.stage = job_stage::parked;
  job.far.bytes = job.bytes_total;
  job.far.type = job.op->device->target.type();
  lanes_.start(stand_in_for(job));
}

void matcher::begin_collective(device_job& job) {
  if (member_.has_leader_left()) {
    return close(job, 0, leader_gone);
  }
  job.stage = job_stage::entered;
  const std::uint64_t number = ++last_collective_;
  entered_[number] = &job;
  mail_.say_to_leader(enter_message{number, job.launch->terms});
}

device_job::proxy& matcher::stand_in_for(device_job& job) {
  const operation& op = *job.op;
  job.stand_in.emplace(job, *this, op.kind, [](operation& p, operation_end how) noexcept {
    auto& ended = static_cast<device_job::proxy&>(p);
    ended.matched_by.proxy_ended(ended.of, how);
  });
  device_job::proxy& proxy = *job.stand_in;
  proxy.peer = op.peer;
  proxy.on = op.on;
  proxy.discards = op.discards;
  proxy.on_device = &job.far;
  job.proxy_runs = true;
  return proxy;
}

bool matcher::withdraw(device_job& job) noexcept {
  if (job.stage != job_stage::parked || !lanes_.withdraw(*job.stand_in)) return false;
  job.proxy_runs = false;
  announced_.erase(job.token);
  jobs_.abandon(job);
  return true;
}

void matcher::fail_receives(const std::string& why) {
  for (const auto& job : jobs_.all()) {
    if (!job->op || job->op->kind != operation_kind::receive ||
        job->stage != job_stage::parked || !lanes_.withdraw(*job->stand_in)) {
      continue;
    }
    job->proxy_runs = false;
    jobs_.fail(*job, cause::closed, why);
  }
}

void matcher::proxy_ended(device_job& job, operation_end how) noexcept {
  MW_ASSERT(job.proxy_runs, "a proxy ends once (law 1)");
  job.proxy_runs = false;
  if (!job.op) return jobs_.recycle(job);
  // Its place may have come before the word that it was taken, or that it was not: what
  // is placed goes on, since its peer does.
  if (job.stage != job_stage::parked) return;
  if (how == operation_end::done) {
    job.stage = job_stage::matched;
    if (job.op->kind == operation_kind::receive) {
      member_.guarded([&] { taken_by(job); });
    } else if (member_.has_leader_left()) {
      announced_.erase(job.token);
      close(job, 0, leader_gone);
    }
    return;
  }
  announced_.erase(job.token);
  if (how == operation_end::withdrawn) return jobs_.finish(job, how);
  jobs_.fail(job, job.stand_in->failed_with, std::move(job.stand_in->failure_detail));
}

void matcher::taken_by(device_job& receive) {
  const message_info& info = receive.stand_in->info;
  send_description sent;
  try {
    sent = decode_send(receive.far.description, info.bytes);
  } catch (const wire_error& e) {
    return member_.break_world(info.source, cause::protocol_error, e.what());
  }
  receive.peer = info.source;
  receive.launch->peer = info.source;
  receive.launch->is_matched = true;
  receive.launch->layout = std::move(sent.layout);
  const std::pair key(info.source, sent.token);
  if (!unplaced_receives_.emplace(key, &receive).second) {
    return member_.break_world(info.source, cause::protocol_error, "a token used twice");
  }
  if (member_.has_leader_left()) {
    unplaced_receives_.erase(key);
    return close(receive, 0, leader_gone);
  }
  pair_request request;
  request.sender = info.source;
  request.token = sent.token;
  request.bytes = info.bytes;
  request.layout = receive.layout;
  mail_.say_to_leader(request);
}

void matcher::hear(const pair_launch& m) {
  const bool sends = m.sender == member_.self;
  if (m.sender == m.receiver || (!sends && m.receiver != member_.self)) {
    throw wire_error("a launch that is not this member's");
  }
  device_job* job = nullptr;
  if (sends) {
    const auto found = announced_.find(m.token);
    if (found != announced_.end() && found->second->bytes_total == m.bytes &&
        found->second->op->peer == m.receiver) {
      job = found->second;
      job->launch->is_matched = true;
      job->launch->layout = m.layout;
      announced_.erase(found);
    }
  } else {
    const auto found = unplaced_receives_.find(std::pair(m.sender, m.token));
    if (found != unplaced_receives_.end()) {
      job = found->second;
      unplaced_receives_.erase(found);
    }
  }
  if (job) return turns_.enqueue(*job, m.place);
  // The launch is of a send that was given up, and about which the receiver did not
  // answer in time.
  member_.break_world(sends ? m.receiver : m.sender, cause::mismatch,
                      "a receive was matched with a send that had been given up");
}

void matcher::hear(const pair_closed& m) {
  if (m.sender == member_.self) {
    const auto sent = announced_.find(m.token);
    if (sent == announced_.end()) return;
    device_job& job = *sent->second;
    announced_.erase(sent);
    return jobs_.fail(job, cause::closed, why_closed(job.peer));
  }
  const auto found = unplaced_receives_.find(std::pair(m.sender, m.token));
  if (found == unplaced_receives_.end()) return;
  device_job& job = *found->second;
  unplaced_receives_.erase(found);
  jobs_.fail(job, cause::closed, why_closed(m.sender));
}

// Whom a message is with, its operation knows.
void matcher::close(device_job& job, rank_t left, std::string why) noexcept {
  if (is_collective(job.op->kind)) job.op->info.source = left;
  jobs_.fail(job, cause::closed, std::move(why));
}

std::string matcher::why_closed(rank_t peer) const {
  if (member_.is_closed_early()) return closed_early;
  return fmt::format("rank {} has left", peer);
}

void matcher::hear(const collective_launch& m) {
  const auto found = entered_.find(m.number);
  if (found == entered_.end()) throw wire_error("a launch of what was not entered");
  device_job& job = *found->second;
  entered_.erase(found);
  turns_.enqueue(job, m.place);
}

void matcher::hear(const collective_closed& m) {
  const auto found = entered_.find(m.number);
  if (found == entered_.end()) return;
  device_job& job = *found->second;
  entered_.erase(found);
  close(job, m.left, fmt::format("rank {} has left", m.left));
}

void matcher::leader_has_left() {
  while (!unplaced_receives_.empty()) {
    device_job& job = *unplaced_receives_.begin()->second;
    unplaced_receives_.erase(unplaced_receives_.begin());
    close(job, 0, leader_gone);
  }
  while (!entered_.empty()) {
    device_job& job = *entered_.begin()->second;
    entered_.erase(entered_.begin());
    close(job, 0, leader_gone);
  }
  for (auto at = announced_.begin(); at != announced_.end();) {
    device_job& job = *at->second;
    if (job.stage != job_stage::matched) {
      ++at;
      continue;
    }
    announced_.erase(at);
    close(job, 0, leader_gone);
    // What ends may withdraw others.
    at = announced_.begin();
  }
}

}  // namespace manyworlds::inline v0::detail::nccl
