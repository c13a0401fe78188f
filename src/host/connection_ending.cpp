// How a connection ends: `leave` follows everything, `left` answers it, then both sides
// say that nothing follows and read until the other has said so too: closing earlier
// would reset the stream under what is still on its way.
#include "connection.hpp"

namespace manyworlds::inline v0::host {

const char* connection::handle(const frame& f) {
  switch (f.kind) {
    case frame_kind::leave: {
      if (peer_left_) return "a second leave";
      peer_left_ = true;
      const std::string detail = has_left_text(peer_);
      receiver_.ignore_messages();
      receiver_.drop_offers();
      sender_.close(detail);
      cancel_given_up();
      frame answer;
      answer.kind = frame_kind::left;
      sender_.control(answer);
      events_.peer_left(peer_);
      return nullptr;
    }
    case frame_kind::left:
      if (!said_leave_) return "an answer to a leave that was not made";
      peer_knows_ = true;
      // Before we say that nothing follows: it may end right after.
      events_.peer_knows(peer_);
      return nullptr;
    default:
      if (peer_left_) return nullptr;
      return events_.collective_frame(peer_, f);
  }
}

void connection::leave() {
  leaving_ = true;
  receiver_.ignore_messages();
  receiver_.close("this member has left");
  cancel_given_up();
  if (ended_) stop();
  pump();
}

void connection::abandon_sends() {
  sender_.close("this member has left");
  cancel_given_up();
  pump();
}

void connection::end_cut_short() {
  sender_.close("this member has left");
  sender_.sent(0);
  receiver_.settle();
}

void connection::progress_ending() {
  if (leaving_ && !said_leave_ && !peer_left_ && sender_.is_drained()) {
    said_leave_ = true;
    frame f;
    f.kind = frame_kind::leave;
    sender_.control(f);
  }
  const bool nothing_follows = peer_left_ || peer_knows_;
  if (!nothing_follows || shut_down_ || sender_.batch().is_open() ||
      sender_.batch().queued_bytes() > 0) {
    return;
  }
  shut_down_ = true;
  core_.home.sockets().shut_down_sending(socket_.handle());
}

void connection::ended(int error) {
  if (ended_) return rest();
  ended_ = true;
  // A peer that left, or knows that we did, owes us nothing more.
  const bool orderly = peer_left_ || peer_knows_ || (said_leave_ && error == 0);
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

}  // namespace manyworlds::inline v0::host
