#include "receiver.hpp"

#include <algorithm>
#include <cstring>
#include <utility>

namespace manyworlds::inline v0::host {

const char* receiver::handle(const frame& f, std::span<const std::byte> content) {
  switch (f.kind) {
    case frame_kind::eager:
    case frame_kind::offer:
      return on_message(f, content);
    case frame_kind::complete:
      return on_complete(f);
    case frame_kind::withdraw:
      return on_withdraw(f);
    case frame_kind::pull:
      return answers_.on_pull(f);
    case frame_kind::unpull:
      return answers_.on_unpull(f);
    case frame_kind::taken:
      return answers_.on_taken(f);
    case frame_kind::accepted:
      return answers_.on_accepted(f);
    case frame_kind::withdrawn:
      return answers_.on_withdrawn(f);
    case frame_kind::credit:
      return answers_.on_credit(f);
    default:
      return others_.handle(f);
  }
}

void receiver::note_progress(inbound_message& m, std::size_t bytes) noexcept {
  m.received += bytes;
  m.last_progress = core_.home.now();
  if (!m.taker) return;
  m.taker->bytes_moved += bytes;
  m.taker->begun = true;
}

void receiver::answer(frame_kind kind, std::uint64_t id, std::uint32_t generation) {
  frame f;
  f.kind = kind;
  f.id = id;
  f.generation = generation;
  answers_.control(f);
}

void receiver::pull(inbound_message& m) {
  m.last_progress = core_.home.now();
  pulled_.push_back(&m);
  begin(m);
  core_.watch();
}

// It is watched by nobody: no operation has begun here, and a peer that has no time for
// it stalls none.
void receiver::collect(inbound_message& m) {
  const std::size_t head = m.content.size();
  auto whole = std::make_unique_for_overwrite<std::byte[]>(head + m.payload_bytes);
  if (head > 0) std::memcpy(whole.get(), m.content.data(), head);
  m.owned_content = std::move(whole);
  m.content = {m.owned_content.get(), head};
  m.collected = buffer_view(m.owned_content.get(), head + m.payload_bytes, dtype::uint8);
  m.collecting = true;
  m.received = 0;
  m.target = m.payload_place();
  begin(m);
}

void receiver::complete(inbound_message& m) {
  if (!m.collecting) return core_.matcher->complete(m);
  named_.erase(m.id);
  m.content = {m.owned_content.get(), m.content.size() + m.payload_bytes};
  m.accounted = m.content.size();
  m.is_accounted = true;
  m.wants_taken = false;
  frame f;
  f.kind = frame_kind::accepted;
  f.on = m.on->number;
  f.id = m.id;
  f.bytes = m.accounted;
  answers_.control(f);
  core_.matcher->collected(m);
}

void receiver::begin(inbound_message& m) {
  ++m.generation;
  m.asked = true;
  answer(frame_kind::pull, m.id, m.generation);
}

void receiver::stop(inbound_message& m) {
  if (!std::exchange(m.asked, false)) return;
  answer(frame_kind::unpull, m.id, m.generation);
}

void receiver::consumed(inbound_message& m, bool was_received) {
  if (m.is_kept) {
    named_.erase(m.id);
    std::erase(pulled_, &m);
    let_go(m);
  }
  if (was_received) {
    ++core_.counters.messages_received;
    if (m.wants_taken) answer(frame_kind::taken, m.id);
  }
  inbound_lane& l = *m.on;
  l.owed_bytes += m.cost;
  l.owed_content += m.accounted;
  if (m.is_accounted) ++l.owed_messages;
  owed_bytes_ += m.cost;
  if (!l.is_owed) {
    l.is_owed = true;
    owing_.push_back(&l);
    core_.tidy_soon();
  }
}

// Small credits ride with other frames: by themselves they would cost a packet per
// message.
void receiver::return_owed(bool all) {
  const std::size_t worth_it = core_.options.lane_window / 2;
  if (owed_bytes_ >= core_.peer_window / 2) all = true;
  std::erase_if(owing_, [&](inbound_lane* l) {
    if (!all && l->owed_bytes < worth_it) return false;
    frame f;
    f.kind = frame_kind::credit;
    f.on = l->number;
    f.id = l->owed_messages;
    f.word = l->owed_content;
    f.bytes = l->owed_bytes;
    answers_.control(f);
    l->held_bytes -= l->owed_bytes;
    if (!core::is_own(l->number)) held_bytes_ -= l->owed_bytes;
    owed_bytes_ -= l->owed_bytes;
    l->owed_bytes = l->owed_content = 0;
    l->owed_messages = 0;
    l->is_owed = false;
    core_.matcher->tidy(peer_, *l);
    return true;
  });
}

void receiver::unpull(inbound_message& m) {
  std::erase(pulled_, &m);
  stop(m);
  let_go(m);
  core_.matcher->release_taker(m);
  if (m.may_be_kept && !m.is_being_brought()) note_untaken(m);
}

bool receiver::withdraw(inbound_message& m) {
  if (is_in_use(m)) {
    m.giving_up = true;
    return false;
  }
  unpull(m);
  return true;
}

void receiver::settle() {
  for (std::size_t i = 0; i < pulled_.size();) {
    inbound_message& m = *pulled_[i];
    if (!m.giving_up || is_in_use(m)) {
      ++i;
      continue;
    }
    operation& op = *m.taker;
    unpull(m);
    if (closed_detail_.empty()) {
      op.end(operation_end::withdrawn);
    } else {
      op.fail(cause::closed, closed_detail_);
    }
    i = 0;
  }
}

bool receiver::is_stalled(time_point now) const {
  return std::any_of(pulled_.begin(), pulled_.end(), [&](const inbound_message* m) {
    return now - m->last_progress >= core_.options.stall_limit;
  });
}

void receiver::restart_windows(time_point now) {
  for (inbound_message* m : pulled_) m->last_progress = now;
}

}  // namespace manyworlds::inline v0::host
