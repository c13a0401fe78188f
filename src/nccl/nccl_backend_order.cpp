// Matching: what was matched is launched when rank 0 says so.
#include <fmt/format.h>

#include "nccl_backend.hpp"

namespace manyworlds::inline v0::nccl {

void nccl_backend::proxy_ended(device_job& job, operation_end how) noexcept {
  job.proxy_runs = false;
  if (!job.op) return recycle(job);
  // Its place may have come before the word that it was taken, or that it was not: what
  // is placed goes on, since its peer does.
  if (job.stage != job_stage::parked) return;
  if (how == operation_end::done) {
    job.stage = job_stage::matched;
    if (job.op->kind == operation_kind::receive) {
      guarded([&] { taken_by(job); });
    } else if (left_[0]) {
      announced_.erase(job.token);
      fail(job, cause::closed, "rank 0 has left before it was placed");
    }
    return;
  }
  announced_.erase(job.token);
  if (how == operation_end::withdrawn) return finish(job, how);
  fail(job, job.stand_in->failed_with, std::move(job.stand_in->failure_detail));
}

void nccl_backend::taken_by(device_job& receive) {
  const message_info& info = receive.stand_in->info;
  send_description sent;
  try {
    sent = decode_send(receive.far.description, info.bytes);
  } catch (const wire_error& e) {
    return break_world(info.source, cause::protocol_error, e.what());
  }
  receive.peer = info.source;
  receive.launch->peer = info.source;
  receive.launch->is_matched = true;
  receive.launch->layout = std::move(sent.layout);
  if (!unplaced_receives_.emplace(std::pair(info.source, sent.token), &receive).second) {
    return break_world(info.source, cause::protocol_error, "a token used twice");
  }
  pair_request request;
  request.sender = info.source;
  request.token = sent.token;
  request.bytes = info.bytes;
  request.layout = receive.layout;
  if (self_ == 0) return leader_->place_pair(0, request, home_.now());
  if (!left_[0]) return say(0, request);
  unplaced_receives_.erase(std::pair(info.source, sent.token));
  fail(receive, cause::closed, "rank 0 has left, which puts operations in order");
}

void nccl_backend::carry_out(const pair_launch& m) {
  device_job* job = nullptr;
  if (m.sender == self_) {
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
  if (job) return enqueue_matched(*job, m.place);
  // Of a send that was given up, and about which the receiver did not answer in time.
  break_world(m.sender == self_ ? m.receiver : m.sender, cause::mismatch,
              "its receive is matched with a send that was given up");
}

void nccl_backend::carry_out(const pair_closed& m) {
  if (m.sender == self_) {
    const auto sent = announced_.find(m.token);
    if (sent == announced_.end()) return;
    device_job& job = *sent->second;
    announced_.erase(sent);
    return fail(job, cause::closed, why_closed(job.peer));
  }
  const auto found = unplaced_receives_.find(std::pair(m.sender, m.token));
  if (found == unplaced_receives_.end()) return;
  device_job& job = *found->second;
  unplaced_receives_.erase(found);
  fail(job, cause::closed, why_closed(m.sender));
}

std::string nccl_backend::why_closed(rank_t peer) const {
  if (never_opens_ && !is_open_) return "a member has left before the device was ready";
  return fmt::format("rank {} has left", peer);
}

void nccl_backend::carry_out(const collective_launch& m) {
  const auto found = entered_.find(m.number);
  if (found == entered_.end()) {
    return break_world(0, cause::protocol_error, "a launch of what was not entered");
  }
  device_job& job = *found->second;
  entered_.erase(found);
  enqueue_matched(job, m.place);
}

void nccl_backend::carry_out(const collective_closed& m) {
  if (m.number == never) {
    if (is_open_ || places_.may_connect) return;
    close_device(fmt::format("rank {} has left before the device was ready", m.left));
    return note_orderly();
  }
  const auto found = entered_.find(m.number);
  if (found == entered_.end()) return;
  device_job& job = *found->second;
  entered_.erase(found);
  fail(job, cause::closed, fmt::format("rank {} has left", m.left));
}

// What rank 0 had placed it has said before it left: the rest gets no place any more.
void nccl_backend::fail_unplaced() {
  const std::string why = "rank 0 has left before it was placed";
  while (!unplaced_receives_.empty()) {
    device_job& job = *unplaced_receives_.begin()->second;
    unplaced_receives_.erase(unplaced_receives_.begin());
    fail(job, cause::closed, why);
  }
  while (!entered_.empty()) {
    device_job& job = *entered_.begin()->second;
    entered_.erase(entered_.begin());
    fail(job, cause::closed, why);
  }
  for (auto at = announced_.begin(); at != announced_.end();) {
    device_job& job = *at->second;
    if (job.stage != job_stage::matched) {
      ++at;
      continue;
    }
    announced_.erase(at);
    fail(job, cause::closed, why);
    // A task that was resumed may have changed all of it.
    at = announced_.begin();
  }
}

void nccl_backend::peer_left(rank_t peer) noexcept {
  guarded([&] {
    left_[static_cast<std::size_t>(peer)] = true;
    if (leader_) leader_->leave(peer, home_.now());
    // Unless it has said before that all are to connect their peers it says so no more.
    if (peer == 0 && !is_open_ && !places_.may_connect) {
      close_device("rank 0 has left before the device was ready");
    }
    // Nobody resumes it now.
    if (memory_is_away_) {
      fail_queued(fmt::format("rank {} has left", peer));
      note_orderly();
    }
    if (peer == 0) {
      fail_unplaced();
      forget_promises();
    }
  });
  events_.peer_left(peer);
  go_if_idle();
}

}  // namespace manyworlds::inline v0::nccl
