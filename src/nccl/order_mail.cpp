#include "nccl/order_mail.hpp"

#include <utility>

#include "manyworlds/detail/assertion.hpp"

namespace manyworlds::inline v0::detail::nccl {

order_mail::transfer::transfer(order_mail& mail, operation_kind kind) noexcept
    : operation(kind,
                [](operation& op, operation_end how) noexcept {
                  auto& t = static_cast<transfer&>(op);
                  if (op.kind == operation_kind::send) return t.mail_.sent(t);
                  if (how == operation_end::done) return t.mail_.arrived(t);
                  // A member that has left says nothing further.
                  if (op.failed_with != cause::closed) t.mail_.refused(t);
                }),
      mail_(mail) {
  on = order_lane;
  on_device = &far_;
  far_.takes_any = true;
}

void order_mail::open() {
  for (rank_t r = 0; r < member_.size; ++r) {
    if (r == member_.self || (!member_.leads() && r != 0)) continue;
    transfers_.push_back(std::make_unique<transfer>(*this, operation_kind::receive));
    transfers_.back()->peer = r;
    unarmed_.push_back(transfers_.back().get());
  }
  drain();
}

void order_mail::say(rank_t to, const order_message& message) {
  MW_ASSERT(to != member_.self, "a member's own words do not travel");
  if (member_.has_left(to)) return;
  transfer* send = idle_;
  if (send) {
    idle_ = std::exchange(send->next_idle, nullptr);
  } else {
    transfers_.push_back(std::make_unique<transfer>(*this, operation_kind::send));
    send = transfers_.back().get();
  }
  send->peer = to;
  send->set_text(encode(message));
  if (member_.leads()) send->number = own_.say(to);
  way_.start(*send);
}

void order_mail::say_to_others(const order_message& message) {
  for (rank_t r = 0; r < member_.size; ++r) {
    if (r != member_.self) say(r, message);
  }
}

void order_mail::say_to_leader(const order_message& message) {
  if (member_.leads()) return reader_.read(0, message);
  say(0, message);
}

void order_mail::decide(rank_t whom, const order_message& message) {
  MW_ASSERT(member_.leads(), "only rank 0 decides");
  if (whom != member_.self) return say(whom, message);
  own_.add(message);
  (void)hear_own();
}

bool order_mail::hear_own() {
  // What is read may decide something in turn: it comes behind.
  if (std::exchange(hears_own_, true)) return false;
  bool any = false;
  while (!member_.is_over) {
    const std::optional<order_message> next = own_.take();
    if (!next) break;
    any = true;
    try {
      reader_.read(0, *next);
    } catch (const wire_error& e) {
      member_.break_world(member_.self, cause::protocol_error, e.what());
    }
  }
  hears_own_ = false;
  if (has_own() && !member_.is_over) reader_.must_poll();
  return any;
}

void order_mail::sent(transfer& t) noexcept {
  if (member_.leads()) own_.note_sent(t.number);
  t.next_idle = idle_;
  idle_ = &t;
}

void order_mail::arrived(transfer& t) noexcept {
  member_.guarded([&] {
    unread_.push_back({t.info.source, t.take_received()});
    unarmed_.push_back(&t);
  });
  drain();
}

void order_mail::refused(const transfer& t) noexcept {
  member_.break_world(t.peer, cause::protocol_error,
                      "no message of the order where only such are");
}

// A receive that is posted again may be served at once, by a call from within: what it
// brings is then read here, in its turn, and not ever deeper in the stack.
void order_mail::drain() noexcept {
  if (std::exchange(is_draining_, true)) return;
  while (!member_.is_over && (!unread_.empty() || !unarmed_.empty())) {
    while (!unarmed_.empty()) {
      transfer* const receive = unarmed_.back();
      unarmed_.pop_back();
      way_.start(*receive);
    }
    if (unread_.empty()) continue;
    const received next = std::move(unread_.front());
    unread_.pop_front();
    try {
      reader_.read(next.from, decode_order(next.text));
    } catch (const wire_error& e) {
      member_.break_world(next.from, cause::protocol_error, e.what());
    } catch (const std::exception& e) {
      member_.break_world(member_.self, cause::out_of_resources, e.what());
    }
  }
  is_draining_ = false;
  reader_.all_read();
}

}  // namespace manyworlds::inline v0::detail::nccl
