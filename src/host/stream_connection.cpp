#include "host/stream_connection.hpp"

#include <utility>

#include "manyworlds/detail/assertion.hpp"

namespace manyworlds::inline v0::detail::host {

stream_connection::stream_connection(core& shared, connection_listener& listener,
                                     rank_t peer, socket stream)
    : connection(shared, listener, peer),
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

void stream_connection::open() noexcept { submit_receive(); }

void stream_connection::submit_receive() {
  if (stopped_ || ended_) return rest();
  MW_ASSERT(!receiving_now_, "one receive at most is in flight");
  const auto entries = receiver_.entries();
  receive_.buffers = entries.data();
  receive_.buffer_count = entries.size();
  receiving_now_ = true;
  core_.home.io().submit(receive_);
}

void stream_connection::pump() noexcept {
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

void stream_connection::sent() noexcept {
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
      core_.watch();
      if (ended_) rest();
      return;
    }
    if (sender_.batch().is_large() && !sender_.batch().is_open()) core_.tidy_soon();
  });
  if (core_.stopping && stopped_) return;
  pump();
  if (ended_) rest();
}

void stream_connection::received() noexcept {
  MW_ASSERT(receiving_now_, "a request ends once");
  receiving_now_ = false;
  if (stopped_) return rest();
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
  if (stopped_) return rest();
  guarded([this] { submit_receive(); });
  cancel_given_up();
  pump();
}

void stream_connection::cancel_given_up() noexcept {
  if (sender_.must_cancel()) {
    // Without a request (the stream takes no more) there is no end to wait for.
    sending_now_ ? core_.home.io().cancel(send_) : guarded([this] { sender_.sent(0); });
  }
  if (receiving_now_ && receiver_.must_cancel()) core_.home.io().cancel(receive_);
}

void stream_connection::stop() noexcept {
  if (stopped_) return;
  stopped_ = true;
  if (sending_now_) core_.home.io().cancel(send_);
  if (receiving_now_) core_.home.io().cancel(receive_);
  if (at_rest()) socket_.close();
}

void stream_connection::rest() noexcept {
  if (!at_rest()) return;
  // Only a stopped or orderly ended connection is closed: a lost one waits for its
  // world to break.
  if (stopped_ || shut_down_) {
    stopped_ = true;
    socket_.close();
  }
  listener_.came_to_rest();
}

bool stream_connection::must_watch() noexcept {
  return !ended_ && !stopped_ &&
         (receiver_.has_begun() || sender_.has_begun() || sender_.is_settling() ||
          sender_.is_wanting() || send_error_ != 0);
}

void stream_connection::look(time_point now, bool late) {
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

void stream_connection::tidy() {
  if (stopped_ || ended_) return;
  receiver_.return_credit(true);
  pump();
  if (!sending_now_) sender_.batch().shrink();
}

}  // namespace manyworlds::inline v0::detail::host
