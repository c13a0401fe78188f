#include "barrier.hpp"

#include <algorithm>

namespace manyworlds::inline v0::host {

namespace {

std::string list_of(const std::vector<rank_t>& ranks) {
  std::string text = ranks.size() == 1 ? "rank " : "ranks ";
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    if (i > 0) text += ", ";
    text += std::to_string(ranks[i]);
  }
  return text;
}

// Later than this, a timer says more about us than about the others.
constexpr duration lateness_limit = std::chrono::seconds(1);

}  // namespace

barrier::barrier(core& shared, barrier_port& port)
    : core_(shared),
      port_(port),
      entered_by_(static_cast<std::size_t>(shared.size), 0),
      left_(static_cast<std::size_t>(shared.size), false) {}

void barrier::enter(operation& op) {
  if (left_rank_ != no_rank) return op.fail(cause::closed, has_left_text(left_rank_));
  ++entered_;
  op.begun = true;
  waiting_.push_back(op);
  if (decides()) {
    entered_by_[0] = entered_;
    decide();
  } else {
    tell_entries();
  }
  look_later();
}

void barrier::tell_entries() {
  while (told_ < entered_ && told_ - ended_ < most_unanswered) {
    frame f;
    f.kind = frame_kind::enter;
    f.generation = collective_barrier;
    f.id = ++told_;
    f.bytes = static_cast<std::uint64_t>(core_.size);
    port_.tell(0, f);
  }
}

const char* barrier::handle(rank_t peer, const frame& f) {
  switch (f.kind) {
    case frame_kind::enter:
      return on_enter(peer, f);
    case frame_kind::release:
      return on_release(peer, f);
    case frame_kind::absent:
      return on_absent(peer, f);
    default:
      return "a frame that does not belong here";
  }
}

const char* barrier::on_enter(rank_t peer, const frame& f) {
  if (!decides()) return "an entry into a collective to a member that does not decide";
  std::uint64_t& entered = entered_by_[static_cast<std::size_t>(peer)];
  if (f.generation != collective_barrier || f.id != entered + 1 ||
      f.bytes != static_cast<std::uint64_t>(core_.size)) {
    core_.events.must_break(
        peer, cause::mismatch,
        "rank " + std::to_string(peer) + " entered collective " + std::to_string(f.id) +
            " (kind " + std::to_string(f.generation) + ", of " + std::to_string(f.bytes) +
            " members), rank 0 expected barrier " + std::to_string(entered + 1) + " of " +
            std::to_string(core_.size));
    return nullptr;
  }
  // Once a member has left nothing ends here any more, and no peer enters what it did not
  // enter before it heard of that: the limit holds then too.
  if (f.id > ended_ + most_unanswered) return "more entries than may be unanswered";
  entered = f.id;
  if (left_rank_ != no_rank) {
    frame closed;
    closed.kind = frame_kind::release;
    closed.generation = release_closed;
    closed.id = f.id;
    closed.on = static_cast<std::uint64_t>(left_rank_);
    port_.tell(peer, closed);
    return nullptr;
  }
  decide();
  look_later();
  return nullptr;
}

void barrier::decide() {
  while (left_rank_ == no_rank) {
    const std::vector<rank_t> missing = absent();
    if (missing.empty()) {
      end_oldest(true, no_rank);
      continue;
    }
    for (const rank_t rank : missing) {
      if (left_[static_cast<std::size_t>(rank)]) left_rank_ = rank;
    }
    if (left_rank_ == no_rank) return;
  }
  const std::uint64_t last = *std::max_element(entered_by_.begin(), entered_by_.end());
  while (ended_ < last) end_oldest(false, left_rank_);
}

void barrier::end_oldest(bool complete, rank_t left) {
  ++ended_;
  frame f;
  f.kind = frame_kind::release;
  f.id = ended_;
  f.generation = complete ? release_complete : release_closed;
  f.on = complete ? 0 : static_cast<std::uint64_t>(left);
  tell_entered(ended_, f);
  core_.home.timers().disarm(timer_);
  remarked_ = false;
  if (entered_ < ended_) return;
  operation* op = waiting_.pop_front();
  if (!op) return;
  if (complete) {
    op->end(operation_end::done);
  } else {
    op->fail(cause::closed, has_left_text(left));
  }
}

void barrier::tell_entered(std::uint64_t sequence, const frame& f) {
  for (rank_t rank = 1; rank < core_.size; ++rank) {
    const auto at = static_cast<std::size_t>(rank);
    if (entered_by_[at] >= sequence && !left_[at]) port_.tell(rank, f);
  }
}

const char* barrier::on_release(rank_t peer, const frame& f) {
  if (peer != 0) return "a release of a collective that it does not decide";
  if (f.id != ended_ + 1 || f.id > told_) return "a release of a collective out of turn";
  if (f.on >= static_cast<std::uint64_t>(core_.size))
    return "a rank outside of the world";
  ++ended_;
  core_.home.timers().disarm(timer_);
  remarked_ = false;
  if (f.generation == release_complete) {
    tell_entries();
    if (operation* op = waiting_.pop_front()) op->end(operation_end::done);
  } else if (left_rank_ == no_rank) {
    // No later barrier is possible either: rank 0 is asked no more.
    left_rank_ = static_cast<rank_t>(f.on);
    fail_all(cause::closed, has_left_text(left_rank_));
  }
  look_later();
  return nullptr;
}

const char* barrier::on_absent(rank_t peer, const frame& f) {
  if (peer != 0) return "news of a collective that it does not decide";
  if (f.id != ended_ + 1 || remarked_) return nullptr;
  remarked_ = true;
  std::vector<rank_t> ranks;
  for (rank_t rank = 0; rank < std::min<rank_t>(core_.size, 64); ++rank) {
    if ((f.word >> rank) & 1U) ranks.push_back(rank);
  }
  if (f.on >= static_cast<std::uint64_t>(core_.size))
    return "a rank outside of the world";
  if (ranks.empty()) ranks.push_back(static_cast<rank_t>(f.on));
  core_.events.remark("barrier " + std::to_string(f.id) + " waits for " + list_of(ranks));
  return nullptr;
}

void barrier::peer_left(rank_t peer) {
  left_[static_cast<std::size_t>(peer)] = true;
  if (decides()) {
    // Only a barrier that somebody has entered is impossible; the next entry asks again.
    // After an earlier leave each entry was answered as it came, and is not again.
    const bool any_waits =
        *std::max_element(entered_by_.begin(), entered_by_.end()) > ended_;
    if (any_waits && left_rank_ == no_rank) decide();
    look_later();
  } else if (peer == 0) {
    left_rank_ = 0;
    fail_all(cause::closed, has_left_text(0));
  }
}

void barrier::fail_all(enum cause why, const std::string& detail) {
  stop();
  waiting_.fail_all(why, detail);
}

// Rank 0 knows who is absent; the others know whether they themselves wait.
std::vector<rank_t> barrier::absent() const {
  std::vector<rank_t> ranks;
  if (!decides()) return {0};
  for (rank_t rank = 0; rank < core_.size; ++rank) {
    if (entered_by_[static_cast<std::size_t>(rank)] <= ended_) ranks.push_back(rank);
  }
  return ranks;
}

void barrier::look_later() {
  const std::uint64_t last =
      decides() ? *std::max_element(entered_by_.begin(), entered_by_.end()) : entered_;
  if (last <= ended_ || left_rank_ != no_rank) return core_.home.timers().disarm(timer_);
  if (timer_.is_armed()) return;
  first_in_ = core_.home.now();
  // The others give rank 0 the time to say it first: it knows more.
  const duration patience = decides() ? duration(0) : core_.options.barrier_remark / 10;
  core_.home.timers().arm(timer_, first_in_ + core_.options.barrier_remark + patience);
}

void barrier::overdue() noexcept {
  const time_point now = core_.home.now();
  const duration late = now - timer_.when();
  if (late > lateness_limit) first_in_ += late;
  const std::vector<rank_t> missing = absent();
  const std::string who =
      "barrier " + std::to_string(ended_ + 1) + " waits for " + list_of(missing);
  const duration limit = decides()
                             ? core_.options.barrier_limit
                             : core_.options.barrier_limit + core_.options.barrier_remark;
  if (now - first_in_ >= limit) {
    const rank_t named = missing.front() == core_.self ? missing.back() : missing.front();
    return core_.events.must_break(named, cause::overdue, who);
  }
  core_.home.timers().arm(timer_, first_in_ + limit);
  if (remarked_) return;
  remarked_ = true;
  if (decides()) {
    frame f;
    f.kind = frame_kind::absent;
    f.id = ended_ + 1;
    f.on = static_cast<std::uint64_t>(missing.front());
    for (const rank_t rank : missing) {
      if (rank < 64) f.word |= std::uint64_t{1} << rank;
    }
    tell_entered(f.id, f);
  }
  core_.events.remark(who);
}

}  // namespace manyworlds::inline v0::host
