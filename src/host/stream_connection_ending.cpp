// How a stream ends: both sides say that nothing follows, and read until the other has
// said so too. Closing earlier would reset the stream under what is still on its way.
#include "host/stream_connection.hpp"

namespace manyworlds::inline v0::detail::host {

void stream_connection::end_cut_short() {
  sender_.close("this member has left");
  sender_.sent(0);
  receiver_.settle();
}

void stream_connection::progress_ending() {
  say_leave_when_drained();
  if (!nothing_follows() || shut_down_ || sender_.batch().is_open() ||
      sender_.batch().queued_bytes() > 0) {
    return;
  }
  shut_down_ = true;
  core_.home.sockets().shut_down_sending(socket_.handle());
}

void stream_connection::ended(int error) {
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
