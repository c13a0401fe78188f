// How a GPU world's backend ends: a member leaves, or the world breaks.
#include <algorithm>
#include <utility>

#include "manyworlds/detail/assertion.hpp"
#include "nccl/nccl_backend.hpp"

namespace manyworlds::inline v0::detail::nccl {

namespace {

// A kernel that is cut short still counts its step, and completes a peer's over garbage
// (NCCL 2.28.9, prims_simple.h, postPeer). The peer takes that for success unless it has
// heard that the world is broken: it was told before, and gets this long to read it.
constexpr duration head_start = std::chrono::milliseconds(5);
/// For a break to come back as `quiesce`, if there is something to break.
constexpr duration break_patience = std::chrono::milliseconds(100);

constexpr const char* we_left = "this member has left";

}  // namespace

// From here on nothing begins or ends, and the GPU's other worlds are not held up.
void nccl_backend::stop() noexcept {
  member_.is_over = true;
  member_.home.timers().disarm(watch_);
  stop_polling();
  launches_.stop();
  graphs_.drop_all();
  if (leading_) leading_->stop();
  turns_.stop();
}

// --- leaving: what is matched is done first, as the peers count on it; then the host
// part leaves as ever, and the communicator is freed in the background.

void nccl_backend::leave(work& gone, time_point deadline) noexcept {
  MW_ASSERT(!gone_ && !member_.is_over, "a member leaves once");
  gone_ = &gone;
  leave_deadline_ = deadline;
  const time_point now = member_.home.now();
  // The rest is for the host part.
  member_.home.timers().arm(ending_timer_,
                            now + std::max(deadline - now, duration(0)) / 2);
  member_.guarded([this] {
    matcher_.fail_receives(we_left);
    opening_.fail_waiting(we_left);
  });
  go_if_idle();
}

void nccl_backend::go_if_idle() noexcept {
  if (!gone_ || host_leaves_ || member_.is_over) return;
  if (broke_late_ && ending_timer_.is_armed()) return;
  const bool is_late =
      broke_late_ || !ending_timer_.is_armed() || member_.home.now() >= leave_deadline_;
  const bool is_counted_on = do_peers_count_on_us();
  if (!is_late && (is_counted_on || is_busy())) return;
  // What the peers count on is cut short: told no more than that we left, they would take
  // what that makes of theirs for success. Nothing breaks if all others have left.
  if (member_.size > 1 && is_counted_on && !std::exchange(broke_late_, true)) {
    member_.home.timers().arm(ending_timer_, member_.home.now() + break_patience);
    return member_.break_world(member_.self, cause::overdue,
                               "it left before its operations on the device were done");
  }
  host_leaves_ = true;
  member_.guarded([this] {
    views_.fail_all(we_left);
    turns_.retire();
    if (leading_) leading_->retire();
  });
  pump();
  member_.home.timers().disarm(ending_timer_);
  host_.leave(host_gone_, leave_deadline_);
}

bool nccl_backend::do_peers_count_on_us() const noexcept {
  // Rank 0 has decided, or may decide, that peers launch what they then wait for here.
  const bool is_promised = leading_ ? mail_.has_own_launch() : turns_.has_promised();
  const bool connects =
      turns_.connects_with_place() && !member_.is_open && !member_.never_opens;
  return is_promised || connects || launches_.is_busy() || launches_.has_held();
}

bool nccl_backend::is_busy() const noexcept {
  return mail_.has_own() || !views_.empty() || !jobs_.are_all_over();
}

void nccl_backend::ending_timer_expired() noexcept {
  quiet_ ? quiesce_communicator() : go_if_idle();
}

void nccl_backend::host_gone() noexcept {
  if (member_.is_over) return;
  stop();
  if (!launches_.is_busy()) return end_leaving();
  // Late, and the stream is not done: no buffer is given back that it may still touch.
  quiesce_communicator();
}

void nccl_backend::end_leaving() noexcept {
  communicator_.release();
  if (work* const gone = std::exchange(gone_, nullptr)) member_.home.schedule(*gone);
}

// --- breaking

void nccl_backend::quiesce(work& quiet) noexcept {
  MW_ASSERT(!quiet_, "a backend quiesces once");
  quiet_ = &quiet;
  noisy_parts_ = 2;
  stop();
  member_.home.timers().disarm(ending_timer_);
  host_.quiesce(part_is_quiet_);
  if (!views_.give_up()) {
    ++noisy_parts_;
    views_.quiesce(views_are_quiet_);
  }
  if (communicator_quiets_) return;
  if (member_.size > 1 && launches_.is_in_flight()) {
    member_.home.timers().arm(ending_timer_, member_.home.now() + head_start);
  } else {
    quiesce_communicator();
  }
}

void nccl_backend::quiesce_communicator() noexcept {
  if (std::exchange(communicator_quiets_, true)) return;
  communicator_.quiesce(communicator_is_quiet_);
}

void nccl_backend::communicator_is_quiet() noexcept {
  if (quiet_) return part_is_quiet();
  communicator_quiets_ = false;
  end_leaving();
}

void nccl_backend::part_is_quiet() noexcept {
  MW_ASSERT(noisy_parts_ > 0 && quiet_, "each part is quiet once");
  if (--noisy_parts_ > 0) return;
  end_leaving();
  member_.home.schedule(*std::exchange(quiet_, nullptr));
}

bool nccl_backend::has_lost_buffers(const operation& op) const noexcept {
  if (!op.device || !op.device->state || !communicator_.is_lost()) return false;
  return job_of(op).is_in_flight;
}

}  // namespace manyworlds::inline v0::detail::nccl
