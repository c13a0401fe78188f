// How a channel ends: `leave` follows everything, `left` answers it.
#include "host/channel.hpp"

#include <string>

#include "host/host_backend.hpp"
#include "manyworlds/detail/assertion.hpp"

namespace manyworlds::inline v0::detail::host {

const char* channel::handle(const frame& f) {
  switch (f.kind) {
    case frame_kind::leave: {
      if (peer_left_) return "a second leave";
      peer_left_ = true;
      const std::string detail = has_left_text(peer_);
      receiving().ignore_messages();
      receiving().drop_offers();
      sending().close(detail);
      cancel_given_up();
      core_.backend.peer_left(peer_);
      // Answered last: the peer may end as soon as it sees this. Tasks that `peer_left`
      // resumes must not take that for a death.
      frame answer;
      answer.kind = frame_kind::left;
      sending().control(answer);
      return nullptr;
    }
    case frame_kind::left:
      if (!said_leave_) return confirmed();
      peer_knows_ = true;
      // Reported before we say that nothing follows: the peer may end right after.
      core_.backend.peer_knows(peer_);
      return nullptr;
    default:
      if (peer_left_) return nullptr;
      return core_.backend.collective_frame(peer_, f);
  }
}

void channel::leave() {
  MW_ASSERT(!leaving_, "a member leaves once");
  leaving_ = true;
  receiving().ignore_messages();
  receiving().close("this member has left");
  cancel_given_up();
  if (ended_) stop();
  pump();
}

void channel::abandon_sends() {
  sending().close("this member has left");
  cancel_given_up();
  pump();
}

void channel::carry_nothing_more() noexcept {
  ended_ = true;
  sending().cut_short();
  receiving().cut_short();
  // A world that all others have left breaks no more: its end waits for no answer.
  if (leaving_ || peer_left_) stop();
}

void channel::say_leave_when_drained() {
  if (!leaving_ || said_leave_ || peer_left_ || !sending().is_drained()) return;
  said_leave_ = true;
  frame f;
  f.kind = frame_kind::leave;
  sending().control(f);
}

void channel::report_stall(const char* direction) {
  core_.events.must_break(peer_, cause::stalled,
                          "a transfer that had begun " + std::string(direction) +
                              " rank " + std::to_string(peer_) +
                              " made no progress for the stall limit");
}

void channel::report_violation(const char* what) {
  core_.events.must_break(peer_, cause::protocol_error,
                          "rank " + std::to_string(peer_) + " sent " + what);
}

}  // namespace manyworlds::inline v0::detail::host
