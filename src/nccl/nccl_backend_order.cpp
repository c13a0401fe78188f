// Matching, and the order in which members launch: what was matched gets its place from
// rank 0, which tells all whom it concerns in one order.
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
  if (self_ == 0) return place_pair(0, request);
  if (!left_[0]) return say(0, request);
  unplaced_receives_.erase(std::pair(info.source, sent.token));
  fail(receive, cause::closed, "rank 0 has left, which puts operations in order");
}

// Rank 0: a pair is to be placed.
void nccl_backend::place_pair(rank_t receiver, const pair_request& request) {
  if (request.sender < 0 || request.sender >= size_ || request.sender == receiver) {
    return break_world(receiver, cause::protocol_error, "a request for no pair");
  }
  if (left_[static_cast<std::size_t>(request.sender)]) {
    const pair_closed closed{request.sender, request.token};
    return receiver == self_ ? carry_out(closed) : say(receiver, closed);
  }
  decide(pair_launch{
      request.sender, receiver, request.token, request.bytes, request.layout, {}});
}

// Rank 0: a member, or this one, is there.
void nccl_backend::enter(rank_t who, std::uint64_t number,
                         const collective_terms& terms) {
  using outcome = collective_table::outcome;
  collective_table::verdict found = table_->enter(who, number, terms, home_.now());
  switch (found.what) {
    case outcome::out_of_turn:
      return break_world(who, cause::protocol_error, std::move(found.detail));
    case outcome::disagrees:
      return break_world(who, cause::mismatch, std::move(found.detail));
    case outcome::complete:
      return decide(collective_launch{number, {}});
    case outcome::lost: {
      const collective_closed closed{number, found.other};
      return who == self_ ? carry_out(closed) : say(who, closed);
    }
    case outcome::waits:
      return;
  }
}

// Rank 0: the order is that of this queue. To say something may resume a user's task,
// which starts an operation, which is decided at once: it must come behind this one here
// and at every member.
void nccl_backend::decide(order_message decision) {
  decisions_.push_back(std::move(decision));
  if (std::exchange(deciding_, true)) return;
  while (!decisions_.empty() && !stopping_) {
    const order_message next = std::move(decisions_.front());
    decisions_.pop_front();
    if (const auto* pair = std::get_if<pair_launch>(&next)) {
      for (const rank_t whom : {pair->sender, pair->receiver}) {
        if (whom != self_) say(whom, next);
      }
      if (pair->sender == self_ || pair->receiver == self_) carry_out(*pair);
      continue;
    }
    say_to_all(next);
    std::visit([this](const auto& m) { carry_out(m); }, next);
  }
  deciding_ = false;
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
  if (job) return enqueue(*job);
  // Of a send that was given up, and about which the receiver did not answer in time.
  break_world(m.sender == self_ ? m.receiver : m.sender, cause::mismatch,
              "its receive is matched with a send that was given up");
}

void nccl_backend::carry_out(const pair_closed& m) {
  const auto found = unplaced_receives_.find(std::pair(m.sender, m.token));
  if (found == unplaced_receives_.end()) return;
  device_job& job = *found->second;
  unplaced_receives_.erase(found);
  fail(job, cause::closed, fmt::format("rank {} has left", m.sender));
}

void nccl_backend::carry_out(const collective_launch& m) {
  const auto found = entered_.find(m.number);
  if (found == entered_.end()) {
    return break_world(0, cause::protocol_error, "a launch of what was not entered");
  }
  device_job& job = *found->second;
  entered_.erase(found);
  enqueue(job);
}

void nccl_backend::carry_out(const collective_closed& m) {
  if (m.number == never) {
    if (!is_open_ && !creating_) {
      close_device(fmt::format("rank {} has left before the device was ready", m.left));
    }
    return;
  }
  const auto found = entered_.find(m.number);
  if (found == entered_.end()) return;
  device_job& job = *found->second;
  entered_.erase(found);
  fail(job, cause::closed, fmt::format("rank {} has left", m.left));
}

void nccl_backend::peer_left(rank_t peer) noexcept {
  guarded([&] {
    left_[static_cast<std::size_t>(peer)] = true;
    if (table_) {
      for (const std::uint64_t number : table_->leave(peer)) {
        decide(collective_closed{number, peer});
      }
    }
    // One that is being made, or will be, may be made all the same.
    if (!is_open_ && !creating_ && (self_ == 0 || peer == 0)) {
      // The others wait for rank 0's word.
      if (self_ == 0) say_to_all(collective_closed{never, peer});
      close_device(fmt::format("rank {} has left before the device was ready", peer));
    }
    // Nobody resumes it now.
    if (memory_is_away_) fail_queued(fmt::format("rank {} has left", peer));
    if (peer == 0) {
      // What it had placed it has said before it left: the rest gets no place any more.
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
  });
  events_.peer_left(peer);
}

}  // namespace manyworlds::inline v0::nccl
