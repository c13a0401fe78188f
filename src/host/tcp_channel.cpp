#include "host/tcp_channel.hpp"

#include <utility>

#include "host/host_backend.hpp"
#include "manyworlds/detail/assertion.hpp"

namespace manyworlds::inline v0::detail::host {

tcp_channel::tcp_channel(core& shared, rank_t peer, socket stream)
    : channel(shared, peer),
      socket_(std::move(stream)),
      sender_(shared),
      receiver_(shared, peer, sender_, *this),
      send_([](io_request& r) noexcept { static_cast<request&>(r).owner.sent(); }, *this),
      receive_([](io_request& r) noexcept { static_cast<request&>(r).owner.received(); },
               *this) {
  send_.kind = io_kind::send;
  receive_.kind = io_kind::receive;
  send_.socket = receive_.socket = socket_.handle();
}

void tcp_channel::open() noexcept { submit_receive(); }

void tcp_channel::submit_receive() {
  if (stopped_ || ended_) return rest();
  MW_ASSERT(!receiving_now_, "one receive at most is in flight");
  const auto entries = receiver_.entries();
  receive_.buffers = entries.data();
  receive_.buffer_count = entries.size();
  receiving_now_ = true;
  core_.home.io().submit(receive_);
}

bool tcp_channel::try_send(operation& op) {
  if (stopped_ || ended_ || leaving_ || peer_left_ || send_error_ != 0) return false;
  if (!sender_.try_send(op)) return false;
  pump();
  return true;
}

void tcp_channel::pump() noexcept {
  if (sending_now_ || corked_ || stopped_ || ended_ || send_error_ != 0) return;
  guarded([this] {
    progress_ending();
    if (shut_down_) return;
    // Frames that are sent anyway carry the small credits.
    if (!sender_.batch().is_open()) receiver_.return_credit(sender_.has_something());
    if (!sender_.next_batch()) return;
    const auto entries = sender_.batch().entries();
    MW_ASSERT(!sending_now_ && !entries.empty(), "one send at most is in flight");
    send_.buffers = entries.data();
    send_.buffer_count = entries.size();
    sending_now_ = true;
    core_.home.io().submit(send_);
  });
}

void tcp_channel::sent() noexcept {
  MW_ASSERT(sending_now_, "a request ends once");
  sending_now_ = false;
  if (stopped_) return rest();
  guarded([this] {
    const io_result result = send_.result;
    sender_.sent(result.ok() ? result.count() : 0);
    if (result.ok()) {
      last_sent_ = core_.home.now();
    } else if (result.error() != ECANCELED && result.error() != EINTR) {
      // What the peer had sent before may still be read, and says why: the receive
      // reports it.
      send_error_ = result.error();
      send_failed_ = core_.home.now();
      core_.backend.watch();
      if (ended_) rest();
      return;
    }
    if (sender_.batch().is_large() && !sender_.batch().is_open())
      core_.backend.tidy_soon();
  });
  if (core_.stopping && stopped_) return;
  pump();
  if (ended_) rest();
}

void tcp_channel::received() noexcept {
  MW_ASSERT(receiving_now_, "a request ends once");
  receiving_now_ = false;
  if (stopped_ || ended_) return rest();
  const io_result result = receive_.result;
  if (!result.ok() && result.error() != ECANCELED && result.error() != EINTR) {
    return ended(result.error());
  }
  if (result.ok() && result.count() == 0) return ended(0);

  const char* wrong = nullptr;
  corked_ = true;
  guarded([&] { wrong = receiver_.received(result.ok() ? result.count() : 0); });
  corked_ = false;
  if (stopped_) return rest();
  if (wrong) {
    ended_ = true;
    report_violation(wrong);
    return rest();
  }
  if (result.ok() && !ended_) core_.events.heard(peer_);
  if (receiver_.is_large()) core_.backend.tidy_soon();
  if (stopped_) return rest();
  guarded([this] { submit_receive(); });
  cancel_given_up();
  pump();
}

void tcp_channel::cancel_given_up() noexcept {
  if (sender_.must_cancel()) {
    // Without a request (the stream takes no more) there is no end to wait for.
    sending_now_ ? core_.home.io().cancel(send_) : guarded([this] { sender_.sent(0); });
  }
  if (receiving_now_ && receiver_.must_cancel()) core_.home.io().cancel(receive_);
}

void tcp_channel::stop() noexcept {
  if (stopped_) return;
  stopped_ = true;
  if (sending_now_) core_.home.io().cancel(send_);
  if (receiving_now_) core_.home.io().cancel(receive_);
  if (at_rest()) socket_.close();
}

void tcp_channel::rest() noexcept {
  if (!at_rest()) return;
  // Only a stopped or orderly ended channel is closed: a lost one waits for its
  // world to break.
  if (stopped_ || shut_down_) {
    stopped_ = true;
    socket_.close();
  }
  core_.backend.channel_rests();
}

bool tcp_channel::must_watch() noexcept {
  return !ended_ && !stopped_ &&
         (receiver_.has_begun() || sender_.has_begun() || sender_.is_settling() ||
          sender_.is_wanting() || send_error_ != 0);
}

void tcp_channel::look(time_point now, bool late) {
  if (ended_ || stopped_) return;
  sender_.settle_overdue(now);
  sender_.log_waiting(now);
  if (late) {
    // A side that did not look cannot say that nothing came.
    receiver_.restart_windows(now);
    last_sent_ = now;
    return;
  }
  if (send_error_ != 0 && now - send_failed_ >= core_.options.settle_limit) {
    return ended(send_error_);
  }
  const bool stuck = sender_.has_begun() && sending_now_ &&
                     now - last_sent_ >= core_.options.stall_limit;
  if (stuck || receiver_.is_stalled(now)) report_stall(stuck ? "to" : "from");
}

void tcp_channel::tidy() {
  if (stopped_ || ended_) return;
  receiver_.return_credit(true);
  pump();
  if (!sending_now_) sender_.batch().shrink();
  if (!receiver_.is_large()) return;
  if (!receiver_.is_due_to_rest(core_.home.now())) {
    core_.backend.tidy_soon();
  } else if (receiving_now_ && receiver_.is_between_frames()) {
    // Nothing may be read into memory that is given back.
    core_.home.io().cancel(receive_);
  }
}

void tcp_channel::end_cut_short() {
  sender_.close("this member has left");
  sender_.sent(0);
  receiver_.settle();
}

// How a stream ends: both sides say that nothing follows, and read until the other has
// said so too. Closing earlier would reset the stream under what is still on its way.
void tcp_channel::progress_ending() {
  say_leave_when_drained();
  if (!nothing_follows() || shut_down_ || sender_.batch().is_open() ||
      sender_.batch().queued_bytes() > 0) {
    return;
  }
  shut_down_ = true;
  core_.home.sockets().shut_down_sending(socket_.handle());
}

void tcp_channel::ended(int error) {
  if (ended_) return rest();
  ended_ = true;
  // A peer that left, or knows that we did, owes us nothing more.
  const bool orderly = nothing_follows() || (said_leave_ && error == 0);
  if (orderly) {
    shut_down_ = true;
    if (sending_now_) core_.home.io().cancel(send_);
  } else if (leaving_) {
    stop();
  } else {
    core_.events.connection_ended(peer_, error != 0 ? error : send_error_);
  }
  rest();
}

}  // namespace manyworlds::inline v0::detail::host
