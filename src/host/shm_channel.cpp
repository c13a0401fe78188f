#include "host/shm_channel.hpp"

#include <algorithm>
#include <cstring>
#include <string>
#include <utility>

#include "host/host_backend.hpp"
#include "manyworlds/detail/assertion.hpp"

namespace manyworlds::inline v0::detail::host {

shm_channel::shm_channel(core& shared, rank_t peer, shm_slot slot)
    : channel(shared, peer),
      slot_(std::move(slot)),
      link_(slot_.link()),
      sender_(shared, *link_, slot_.index()),
      receiver_(shared, peer, sender_, *this, *link_, slot_.index()) {}

shm_channel::~shm_channel() { stop(); }

void shm_channel::open() noexcept { link_->attach(slot_.index(), *this); }

bool shm_channel::is_over(const char* wrong) noexcept {
  MW_ASSERT(corked_, "a step that ends has begun");
  corked_ = false;
  if (stopped_) {
    rest();
    return true;
  }
  if (!wrong) wrong = sender_.violation();
  if (wrong && !std::exchange(ended_, true)) report_violation(wrong);
  return ended_ || stopped_;
}

bool shm_channel::poll() noexcept {
  MW_ASSERT(core_.home.is_current(), "a slot is looked at in the reactor's turn");
  if (stopped_ || ended_ || corked_) return false;
  if (receiver_.has_cells()) {
    const char* wrong = nullptr;
    bool any = false;
    corked_ = true;
    guarded([&] { wrong = receiver_.take(any); });
    if (is_over(wrong)) return true;
  } else if (!sender_.could_go_on() && !receiver_.reader().has_to_read() &&
             !sender_.violation()) {
    return false;
  }
  progress(true);
  return true;
}

bool shm_channel::has_something() noexcept {
  return !stopped_ && !ended_ &&
         (receiver_.has_cells() || receiver_.reader().has_to_read() ||
          sender_.could_go_on() || sender_.violation());
}

bool shm_channel::has_something_or_is_told() noexcept {
  return has_something() || (!stopped_ && !ended_ &&
                             (sender_.could_go_on_or_is_told() || sender_.violation()));
}

// Returns whether a small message leaves nothing else to do: 15 ns less than checking
// for everything.
bool shm_channel::has_only_to_flush() noexcept {
  return !leaving_ && !peer_left_ && !is_pending_ && !sender_.is_starving() &&
         !sender_.helps() && !sender_.violation() && !receiver_.reader().has_to_read() &&
         !receiver_.has_untaken() && !receiver_.owes_answer();
}

// The peer is told even in the midst of a step: the task may go on for long before it
// waits.
bool shm_channel::try_send(operation& op) {
  if (stopped_ || ended_ || leaving_ || peer_left_) return false;
  if (!sender_.try_send(op)) return false;
  sender_.flush();
  return true;
}

// A caller that starts several operations at once, as a collective does, must not read
// a slice for each: reading goes on with the next look.
void shm_channel::pump() noexcept {
  if (stopped_ || ended_) return;
  // A task that goes straight on in a step may compute for long behind what it sent.
  if (corked_) return sender_.flush();
  progress(receiver_.reader().has_to_read() && !core_.home.is_turn_used_up());
}

void shm_channel::progress(bool reads) noexcept {
  MW_ASSERT(!corked_ && !stopped_ && !ended_, "one step at a time, and none at the end");
  if (has_only_to_flush()) return sender_.flush();
  core_.home.note_long_step();
  const char* wrong = nullptr;
  bool more = false;
  corked_ = true;
  guarded([&] {
    const std::uint64_t received = core_.counters.messages_received;
    do {
      if (reads && receiver_.reader().has_to_read())
        wrong = receiver_.reader().read_slice();
      if (stopped_ || wrong) return;
      say_leave_when_drained();
      // Frames that are sent anyway carry the small credits.
      receiver_.return_credit(sender_.has_something());
      // Nor does a caller that starts several operations copy slices for each that only
      // help: those go with the next look, too.
      more = sender_.progress(reads);
      sender_.flush();
      const bool can_say = receiver_.owes_what_found_no_room() && !sender_.is_backed_up();
      more = more || can_say || receiver_.has_untaken();
      // A task that waits for what has come is resumed first.
    } while (reads && received == core_.counters.messages_received && may_read_on());
  });
  if (is_over(wrong)) return;
  if (is_done()) return stop();
  // Reading goes on with the next look, in the next turn: scheduled work runs many
  // times in one turn.
  is_pending_ =
      sender_.is_starving() || sender_.helps() || receiver_.reader().has_to_read();
  link_->set_pending(slot_.index(), is_pending_);
  if (more) go_on_soon();
}

// Reads slice after slice, as long as nothing else waits for this reactor.
bool shm_channel::may_read_on() noexcept {
  if (!receiver_.reader().has_to_read() || receiver_.has_cells() ||
      receiver_.reader().awaits_others()) {
    return false;
  }
  return !core_.home.is_turn_used_up() && !link_->others_have_something(slot_.index());
}

// Shared memory has no end of a stream. So the member that leaves first confirms the
// answer, and the one that answered waits for that: a process may end right after, and
// must not seem to have died.
bool shm_channel::is_done() {
  if (!said_leave_) return peer_left_ && confirmed_;
  if (!peer_knows_) return false;
  if (!peer_left_ && !std::exchange(said_goodbye_, true)) {
    frame f;
    f.kind = frame_kind::left;
    sender_.control(f);
    sender_.flush();
  }
  return !sender_.has_something();
}

const char* shm_channel::confirmed() {
  if (!peer_left_ || std::exchange(confirmed_, true)) return channel::confirmed();
  return nullptr;
}

void shm_channel::wake_ups_ended() noexcept {
  if (nothing_follows()) stop();
}

void shm_channel::go_on_soon() noexcept {
  if (std::exchange(is_next_scheduled_, true)) return;
  core_.home.schedule(next_);
}

void shm_channel::go_on() noexcept {
  MW_ASSERT(is_next_scheduled_ && core_.home.is_current(),
            "scheduled work runs once, on its reactor");
  is_next_scheduled_ = false;
  if (stopped_ && corked_) return;  // The step rests it.
  if (stopped_) return rest();
  guarded([this] {
    sender_.finish_taken();
    // A turn after they came: a receive that follows at once takes them itself.
    receiver_.collect_untaken();
  });
  pump();
}

void shm_channel::cancel_given_up() noexcept {
  if (sender_.has_taken()) go_on_soon();
}

void shm_channel::stop() noexcept {
  if (std::exchange(stopped_, true)) return;
  link_->detach(slot_.index());
  sender_.shut();
  receiver_.shut();
  // In the midst of a step the memory is still looked at.
  if (!corked_) rest();
}

// This side no longer looks at the slot. The link stays: its step may be running.
void shm_channel::rest() noexcept {
  MW_ASSERT(stopped_ && !corked_, "a slot is given back when no step looks at it");
  slot_ = {};
  if (at_rest()) core_.backend.channel_rests();
}

void shm_channel::end_cut_short() {
  sender_.close("this member has left");
  sender_.finish_taken();
  receiver_.settle();
}

bool shm_channel::must_watch() noexcept {
  return !ended_ && !stopped_ &&
         (receiver_.has_begun() || sender_.has_begun() || sender_.is_settling() ||
          sender_.is_wanting());
}

void shm_channel::look(time_point now, bool late) {
  if (ended_ || stopped_) return;
  sender_.settle_overdue(now);
  sender_.log_waiting(now);
  if (late) {
    // A side that did not look cannot say that nothing came.
    receiver_.restart_windows(now);
    sender_.restart_window(now);
    return;
  }
  const time_point moved = std::max(sender_.last_progress(), sender_.active_since());
  const bool stuck = sender_.has_begun() && now - moved >= core_.options.stall_limit;
  if (stuck || receiver_.is_stalled(now)) report_stall(stuck ? "to" : "from");
}

void shm_channel::tidy() {
  if (stopped_ || ended_) return;
  if (const int error = link_->tell_of_refusal()) {
    core_.events.log(log_level::warning,
                     "no more memory for what is shared with rank " +
                         std::to_string(peer_) + " (" + std::strerror(error) +
                         "): messages to it wait for one another; usual cause: a memory "
                         "limit");
  }
  receiver_.return_credit(true);
  sender_.look_for_offer_room();
  pump();
}

}  // namespace manyworlds::inline v0::detail::host
