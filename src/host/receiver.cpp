#include "host/receiver.hpp"

#include <algorithm>
#include <cstring>
#include <utility>

#include "manyworlds/detail/assertion.hpp"

namespace manyworlds::inline v0::detail::host {

namespace {

// Up to this many lanes are told to be ready one by one; with more the peer asks for
// each.
constexpr std::size_t most_ready = 1024;

}  // namespace

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
    case frame_kind::want:
      return on_want(f);
    case frame_kind::relaxed:
      set_tight(false);
      return nullptr;
    case frame_kind::ready:
      return answers_.on_ready(f);
    case frame_kind::returned:
      return answers_.on_returned(f);
    case frame_kind::discarded:
      return answers_.on_discarded(f);
    default:
      return others_.handle(f);
  }
}

void receiver::note_progress(inbound_message& m, std::size_t bytes) noexcept {
  MW_ASSERT(bytes <= m.payload_bytes - m.received,
            "no more of a payload is brought than it has");
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
  MW_ASSERT(m.is_kept && m.offered && m.taker,
            "a receive pulls a message that is offered");
  m.last_progress = core_.home.now();
  pulled_.push_back(&m);
  begin(m);
  core_.watch();
}

// A collected message is not watched: no operation has begun here, and a peer that has
// no time for it stalls none.
void receiver::collect(inbound_message& m) {
  MW_ASSERT(m.offered && !m.is_being_brought(), "a message is brought once at a time");
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
  MW_ASSERT(m.received == m.payload_bytes, "a message is complete with its last byte");
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
  owe(*m.on, m.cost, m.accounted, m.is_accounted ? 1 : 0);
}

void receiver::note_passed_on(inbound_lane& l, std::size_t cost, std::size_t content) {
  ++last_id_;
  ++l.received;
  ++core_.counters.messages_received;
  l.held_bytes += cost;
  if (!core::is_own(l.number)) held_bytes_ += cost;
  owe(l, cost, content, 1);
}

void receiver::owe(inbound_lane& l, std::size_t cost, std::size_t content,
                   std::uint64_t messages) {
  if (!l.is_owed) {
    // Without memory for the list nothing is owed yet.
    owing_.push_back(&l);
    l.is_owed = true;
    core_.tidy_soon();
  }
  l.owed_bytes += cost;
  l.owed_content += content;
  l.owed_messages += messages;
  owed_bytes_ += cost;
  MW_ASSERT(l.owed_bytes <= l.held_bytes, "no more credit is owed than a lane holds");
}

// Small credits ride with other frames: alone they would cost a packet per message.
void receiver::return_owed(bool all) {
  const std::size_t worth_it = core_.options.lane_window / 2;
  if (std::exchange(owes_now_, false) || is_tight_) all = true;
  if (owed_bytes_ >= core_.peer_window / 2) all = true;
  std::erase_if(owing_, [&](inbound_lane* l) {
    if (!all && l->owed_bytes < worth_it) return false;
    MW_ASSERT(l->is_owed, "a lane in the list of owed credit knows it");
    frame f;
    f.kind = frame_kind::credit;
    f.on = l->number;
    f.id = l->owed_messages;
    f.word = l->owed_content;
    f.bytes = l->owed_bytes;
    // A granted message costs nothing.
    if (f.bytes > 0) answers_.control(f);
    MW_ASSERT(l->held_bytes >= l->owed_bytes && owed_bytes_ >= l->owed_bytes,
              "credit is returned once for what a lane holds");
    MW_ASSERT(core::is_own(l->number) || held_bytes_ >= l->owed_bytes,
              "the shared window has all that lanes hold of it");
    l->held_bytes -= l->owed_bytes;
    if (!core::is_own(l->number)) held_bytes_ -= l->owed_bytes;
    owed_bytes_ -= l->owed_bytes;
    l->owed_bytes = l->owed_content = 0;
    l->owed_messages = 0;
    l->is_owed = false;
    core_.matcher->tidy(peer_, *l);
    return true;
  });
  MW_ASSERT(!owing_.empty() || owed_bytes_ == 0, "all credit is owed by lanes");
  if (worth_saying_ == 0) {
    if (answers_.is_backed_up()) return;
    say_ready();
  }
  worth_saying_ = is_tight_ ? 1 : worth_it;
}

void receiver::set_tight(bool tight) {
  worth_saying_ = tight ? 1 : core_.options.lane_window / 2;
  ready_.clear();
  ready_for_fresh_ = ready_for_all_ = false;
  if (std::exchange(is_tight_, tight) != tight) core_.matcher->tell_of_waiting(tight);
}

const char* receiver::on_want(const frame& f) {
  if (ignoring_) return nullptr;
  if (!is_tight_) set_tight(true);
  // A receive that begins to wait later is noted then.
  if (core_.matcher->would_take(peer_, f.on)) note_ready(f.on);
  return nullptr;
}

void receiver::note_posted(const operation& op) {
  if (!is_tight_) return;
  ready_for_fresh_ = ready_for_fresh_ || op.takes_fresh_lanes;
  note_ready(op.on.number());
}

void receiver::note_ready(std::uint64_t lane_number) {
  // The reserved lanes have separate windows.
  if (!is_tight_ || core::is_own(lane_number)) return;
  worth_saying_ = 0;
  if (ready_.size() < most_ready) {
    ready_.push_back(lane_number);
  } else {
    ready_for_all_ = true;
  }
}

// Only a receive that still waits is reported: otherwise the message would come only to
// be sent back.
void receiver::say_ready() {
  std::sort(ready_.begin(), ready_.end());
  ready_.erase(std::unique(ready_.begin(), ready_.end()), ready_.end());
  frame f;
  f.kind = frame_kind::ready;
  for (const std::uint64_t number : ready_) {
    if (!core_.matcher->would_take(peer_, number)) continue;
    ++grants_;
    f.on = number;
    answers_.control(f);
  }
  ready_.clear();
  const bool fresh = std::exchange(ready_for_fresh_, false) &&
                     core_.matcher->waits_for_fresh_lanes(peer_);
  if (!std::exchange(ready_for_all_, false) && !fresh) return;
  f.on = 0;
  f.generation = ready_for_fresh_lanes;
  answers_.control(f);
}

void receiver::remove(inbound_message& m, frame_kind answered) {
  MW_ASSERT(!m.taker, "a message that a receive takes is not dropped under it");
  named_.erase(m.id);
  std::erase(pulled_, &m);
  if (m.offered) stop(m);
  let_go(m);
  m.collecting = false;
  if (m.wants_taken) answer(answered, m.id);
  core_.matcher->drop(m);
}

void receiver::dismiss(inbound_message& m) {
  if (m.taker) return;
  if (m.on->is_discarded) {
    remove(m, frame_kind::discarded);
  } else if (m.granted && !m.head_taken) {
    remove(m, frame_kind::returned);
  }
}

void receiver::discard(inbound_lane& l) {
  std::vector<inbound_message*> dropped;
  for (inbound_message* m = l.first; m; m = m->next) {
    if (!m->taker) dropped.push_back(m);
  }
  // Last message first: if the first went first, a receive that waits behind it would
  // take the next.
  std::reverse(dropped.begin(), dropped.end());
  for (inbound_message* m : dropped) remove(*m, frame_kind::discarded);
}

void receiver::give_up(inbound_message& m) {
  MW_ASSERT(m.taker && stage_of(*m.taker) == stage::taking,
            "a receive gives up the message that it takes");
  const operation& op = *m.taker;
  unpull(m);
  if (op.discards && !op.takes_fresh_lanes) core_.discard_lane(op.peer, op.on.number());
}

void receiver::unpull(inbound_message& m) {
  MW_ASSERT(!is_in_use(m), "no receive ends while the kernel writes its memory (law 4)");
  std::erase(pulled_, &m);
  stop(m);
  let_go(m);
  core_.matcher->release_taker(m);
  if (m.granted || m.on->is_discarded) [[unlikely]]
    return dismiss(m);
  if (m.may_be_kept && !m.is_being_brought()) note_untaken(m);
}

bool receiver::withdraw(inbound_message& m) {
  if (is_in_use(m)) {
    m.giving_up = true;
    return false;
  }
  give_up(m);
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
    give_up(m);
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

}  // namespace manyworlds::inline v0::detail::host
