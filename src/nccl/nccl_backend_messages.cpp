// What the members of a GPU world say to each other.
#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "nccl_backend.hpp"
#include "nccl_library.hpp"

namespace manyworlds::inline v0::nccl {

order_post::order_post(nccl_backend& backend, operation_kind kind) noexcept
    : operation(kind,
                [](operation& op, operation_end how) noexcept {
                  auto& post = static_cast<order_post&>(op);
                  if (op.kind == operation_kind::send)
                    return post.backend_.said_order(post);
                  if (how == operation_end::done) return post.backend_.heard_order(post);
                  // One that has left says nothing any more.
                  if (op.failed_with == cause::closed) return;
                  post.backend_.break_world(
                      op.peer, cause::protocol_error,
                      "no message of the order where only such are");
                }),
      backend_(backend) {
  on = order_lane;
  elsewhere = &far_;
  far_.takes_any = true;
}

void nccl_backend::say(rank_t to, const order_message& message) {
  if (left_[static_cast<std::size_t>(to)]) return;
  order_post* post = idle_posts_;
  if (post) {
    idle_posts_ = std::exchange(post->next_idle, nullptr);
  } else {
    posts_.push_back(std::make_unique<order_post>(*this, operation_kind::send));
    post = posts_.back().get();
  }
  post->peer = to;
  post->set_text(encode(message));
  if (leader_) post->number = own_orders_.say(to);
  host_.start(*post);
}

void nccl_backend::say_to_all(const order_message& message) {
  for (rank_t r = 0; r < size_; ++r) {
    if (r != self_) say(r, message);
  }
}

void nccl_backend::said_order(order_post& post) noexcept {
  if (leader_) own_orders_.note_sent(post.number);
  post.next_idle = idle_posts_;
  idle_posts_ = &post;
}

void nccl_backend::heard_order(order_post& post) noexcept {
  guarded([&] {
    told_.push_back({post.info.source, post.take_received()});
    unarmed_.push_back(&post);
  });
  drain_messages();
}

// A receive that is posted again may be served at once, by a call from within: what it
// brings is then handled here, in its turn, and not ever deeper in the stack.
void nccl_backend::drain_messages() noexcept {
  if (std::exchange(draining_, true)) return;
  while (!stopping_ && (!told_.empty() || !unarmed_.empty())) {
    while (!unarmed_.empty()) {
      order_post* const post = unarmed_.back();
      unarmed_.pop_back();
      host_.start(*post);
    }
    if (told_.empty()) continue;
    const told next = std::move(told_.front());
    told_.pop_front();
    try {
      const order_message message = decode_order(next.text);
      std::visit([&](const auto& m) { handle(next.from, m); }, message);
    } catch (const wire_error& e) {
      break_world(next.from, cause::protocol_error, e.what());
    } catch (const std::exception& e) {
      break_world(self_, cause::out_of_resources, e.what());
    }
  }
  draining_ = false;
}

void nccl_backend::only_from_leader(rank_t from) {
  if (from != 0) throw wire_error("what only rank 0 may say");
}

void nccl_backend::handle(rank_t from, const hello_message& m) {
  auto& place = hellos_[static_cast<std::size_t>(from)];
  if (self_ != 0 || place) throw wire_error("a hello out of turn");
  const bool adopts = options_.device.communicator != nullptr;
  if (never_opens_) return;
  if (m.adopts != adopts) {
    return break_world(from, cause::mismatch,
                       fmt::format("rank {} brings {} communicator, rank 0 {}", from,
                                   m.adopts ? "a" : "no", adopts ? "one" : "none"));
  }
  const int ours = nccl_library::get().version;
  if (m.version != ours) {
    return break_world(
        from, cause::mismatch,
        fmt::format("rank {} has NCCL {}, rank 0 {}: members need the same", from,
                    version_text(m.version), version_text(ours)));
  }
  place = m;
  creation_.capability = std::min(creation_.capability, m.capability);
  if (++hellos_heard_ + 1 < static_cast<std::size_t>(size_)) return;
  creation_.note = who_shares_devices();
  creating_ = true;
  if (!adopts) return communicator_->make_unique_id(id_made_);
  say_to_all(creation_);
  communicator_->adopt(self_, size_, communicator_made_);
}

std::string nccl_backend::who_shares_devices() const {
  std::string note;
  for (rank_t a = 0; a < size_; ++a) {
    const std::string& device =
        a == 0 ? device_->identity() : hellos_[static_cast<std::size_t>(a)]->device;
    for (rank_t b = a + 1; b < size_ && note.size() < 512; ++b) {
      if (hellos_[static_cast<std::size_t>(b)]->device != device) continue;
      note += fmt::format("{}ranks {} and {}", note.empty() ? "" : ", ", a, b);
    }
  }
  if (!note.empty()) {
    note +=
        " share a GPU, which NCCL refuses unless NCCL_MULTI_RANK_GPU_ENABLE=1 "
        "(2.30.3) or their NCCL_HOSTID differ";
  }
  return note;
}

void nccl_backend::handle(rank_t from, const create_message& m) {
  only_from_leader(from);
  if (std::exchange(creating_, true)) throw wire_error("a creation out of turn");
  creation_.note = m.note;
  creation_.capability = m.capability;
  if (places_.seat) places_.seat->set_world(m.order);
  if (options_.device.communicator) {
    return communicator_->adopt(self_, size_, communicator_made_);
  }
  ncclUniqueId id;
  static_assert(sizeof id.internal == sizeof m.id);
  std::memcpy(id.internal, m.id.data(), m.id.size());
  communicator_->create(id, self_, size_, communicator_made_);
}

void nccl_backend::handle(rank_t from, const pair_request& m) {
  if (self_ != 0) throw wire_error("a request to another than rank 0");
  leader_->place_pair(from, m, home_.now());
}

void nccl_backend::handle(rank_t from, const pair_launch& m) {
  only_from_leader(from);
  if (m.sender == m.receiver || (m.sender != self_ && m.receiver != self_)) {
    throw wire_error("a launch that is not this member's");
  }
  carry_out(m);
}

void nccl_backend::handle(rank_t from, const pair_closed& m) {
  only_from_leader(from);
  carry_out(m);
}

void nccl_backend::handle(rank_t from, const enter_message& m) {
  if (self_ != 0) throw wire_error("a collective entered elsewhere than at rank 0");
  leader_->enter(from, m.number, m.terms, home_.now());
}

void nccl_backend::handle(rank_t from, const collective_launch& m) {
  only_from_leader(from);
  carry_out(m);
}

void nccl_backend::handle(rank_t from, const collective_closed& m) {
  only_from_leader(from);
  carry_out(m);
}

}  // namespace manyworlds::inline v0::nccl
