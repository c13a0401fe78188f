#include "host/receiver.hpp"

#include <algorithm>
#include <cstring>
#include <utility>
#include <vector>

#include "host/host_backend.hpp"
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
      return owner_.handle(f);
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
  core_.backend.watch();
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

void receiver::ask(inbound_message& m, std::uint64_t how) {
  ++m.generation;
  m.asked = true;
  m.is_read_too = how == pull_reads_too;
  m.from_end = 0;
  frame f;
  f.kind = frame_kind::pull;
  f.id = m.id;
  f.generation = m.generation;
  f.word = how;
  answers_.control(f);
}

void receiver::stop(inbound_message& m) {
  if (!std::exchange(m.asked, false)) return;
  m.is_read_too = false;
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
    core_.backend.tidy_soon();
    // With a lane for each request each owes little. As long as the peer reads what it is
    // answered no step looks at more of them, nor tells of more (law 9).
    if (owing_.size() >= most_owing) return_soon();
  }
  l.owed_bytes += cost;
  l.owed_content += content;
  l.owed_messages += messages;
  owed_bytes_ += cost;
  MW_ASSERT(l.owed_bytes <= l.held_bytes, "no more credit is owed than a lane holds");
}

// Small credits ride with other frames: alone they would cost a packet per message.
void receiver::return_owed(bool all) {
  // A peer that does not read its answers gets nothing of its window back: otherwise what
  // it sends could be answered without end, and the answers would be kept here (law 9).
  credit_waits_ = answers_.is_backed_up();
  if (credit_waits_) return core_.backend.tidy_soon();
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
  if (op.discards && !op.takes_fresh_lanes)
    core_.backend.discard_lane(op.peer, op.on.number());
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

// What each frame about a message does to its receiver. All frames are read as if a
// stranger wrote them.

const char* receiver::check_id(const frame& f) const {
  return f.id > last_id_ ? "a message that was not announced" : nullptr;
}

inbound_message* receiver::find(std::uint64_t id) {
  const auto found = named_.find(id);
  return found == named_.end() ? nullptr : found->second;
}

namespace {

/// Sets what a message's frame says of it: what matching reads, or changes before the
/// message is kept. Returns false if it describes a payload on a device wrongly.
bool describe(inbound_message& m, const frame& f, std::span<const std::byte> content) {
  const bool offered = f.kind == frame_kind::offer;
  m.id = f.id;
  m.user = f.word;
  m.type = f.type;
  m.head_bytes = f.head_bytes;
  m.payload_bytes = static_cast<std::size_t>(f.bytes);
  m.content = content;
  m.head_taken = false;
  m.is_settled = false;
  m.has_payload = f.bytes > 0 || f.head_bytes == 0 ||
                  (!offered && (f.generation & eager_empty_payload) != 0);
  m.offered = offered;
  m.may_be_kept = offered && f.generation == offer_may_be_kept;
  m.granted = (f.generation & (offered ? offer_granted : eager_granted)) != 0;
  m.wants_taken = offered || (f.generation & eager_wants_taken) != 0;
  m.is_accounted = !m.wants_taken;
  m.accounted = m.is_accounted ? content.size() : 0;
  m.on_device = !offered && (f.generation & eager_on_device) != 0;
  if (!m.on_device) [[likely]]
    return true;
  const auto prefix = decode_prefix(content.subspan(f.head_bytes));
  if (prefix) m.prefix = *prefix;
  return prefix.has_value();
}

}  // namespace

const char* receiver::on_message(const frame& f, std::span<const std::byte> content) {
  MW_ASSERT(content.size() == content_bytes(f),
            "a transport hands on a message with all of its content");
  if (f.id != last_id_ + 1) return "a message out of sequence";
  last_id_ = f.id;
  if (ignoring_) return nullptr;
  if (f.on > (lane::reserved | core::own_lanes)) [[unlikely]]
    return "a message on a reserved lane that does not exist";
  // All messages share one object: to clear a new one would cost each message 8 ns.
  inbound_message& m = arriving_;
  if (!describe(m, f, content)) [[unlikely]]
    return "an invalid description of a payload";
  m.source = peer_;
  m.cost = message_cost + content.size() + (m.may_be_kept ? m.payload_bytes : 0);
  if (m.granted) [[unlikely]] {
    if (grants_ == 0) return "a message without a window that was not asked for";
    --grants_;
    m.cost = 0;
    if (is_tight_ && core_.matcher->waits_for_fresh_lanes(peer_)) {
      worth_saying_ = 0;
      ready_for_fresh_ = true;
    }
  }
  inbound_lane& l = core_.matcher->lane_of(peer_, f.on);
  if (!is_within_windows(l, m.cost)) {
    return "more unreceived data than the window allows";
  }
  l.held_bytes += m.cost;
  if (!core::is_own(f.on)) held_bytes_ += m.cost;
  m.on = &l;

  const bool is_collective = f.on == core::collective_lane;
  if (m.offered) {
    if (is_collective) core_.backend.note_collective_message(peer_, f.word);
    // It is named before it is matched: a receive that waits pulls it at once.
    inbound_message* kept = core_.matcher->keep(m);
    kept->came = core_.home.recently();
    MW_ASSERT(kept->is_kept && kept->id == last_id_,
              "the newest message is the one kept");
    named_[f.id] = kept;
    const bool must_be_taken = kept->granted || l.is_discarded;
    core_.matcher->announce(*kept);
    if (!must_be_taken) return nullptr;
    if (inbound_message* left = find(f.id)) dismiss(*left);
  } else if (inbound_message* kept = core_.matcher->arrive(m)) {
    kept->came = core_.home.recently();
    if (kept->wants_taken) named_[f.id] = kept;
    if (is_collective) core_.backend.note_collective_message(peer_, f.word);
    if (kept->granted || kept->on->is_discarded) dismiss(*kept);
  }
  return nullptr;
}

const char* receiver::on_data(const frame& f, inbound_message*& into) {
  into = nullptr;
  if (const char* wrong = check_id(f)) return wrong;
  inbound_message* m = find(f.id);
  if (m && f.generation > m->generation) return "a slice of a pull that was not made";
  // The slice was sent before our `unpull` was read.
  if (!m || !m->offered || !m->asked || f.generation != m->generation) return nullptr;
  MW_ASSERT(m->from_end <= m->received && m->received <= m->payload_bytes,
            "what was read from the end is a part of what has come");
  const std::size_t sliced = m->received - m->from_end;
  // Nothing is missing of one that was read too: its offer has decided.
  if (m->is_read_too && m->received == m->payload_bytes) return nullptr;
  if (f.word != sliced || f.bytes > m->payload_bytes - sliced) {
    return "a slice that does not follow the one before";
  }
  into = m;
  return nullptr;
}

const char* receiver::on_complete(const frame& f) {
  if (const char* wrong = check_id(f)) return wrong;
  inbound_message* m = find(f.id);
  if (!m || !m->offered || !m->asked || f.generation < m->generation) return nullptr;
  if (f.generation > m->generation || m->received != m->payload_bytes) {
    return "a message that ends before its last byte";
  }
  if (m->is_read_too) return "the end of a message that its receiver ends";
  m->giving_up = false;
  complete(*m);
  return nullptr;
}

const char* receiver::on_withdraw(const frame& f) {
  if (const char* wrong = check_id(f)) return wrong;
  inbound_message* m = find(f.id);
  if (!m) return nullptr;
  answer(frame_kind::withdrawn, f.id);
  // Its window returns with the answer.
  return_soon();
  drop(*m);
  return nullptr;
}

void receiver::drop(inbound_message& m) {
  named_.erase(m.id);
  std::erase(pulled_, &m);
  let_go(m);
  // No receive has seen anything of what was collected.
  if (std::exchange(m.collecting, false)) m.received = 0;
  const bool may_turn_to_another = m.taker && m.taker->peer == no_rank;
  core_.matcher->withdraw(m, closed_detail_);
  if (may_turn_to_another) core_.backend.tidy_now();
}

void receiver::drop_offers() {
  std::vector<inbound_message*> offers;
  for (const auto& entry : named_) {
    if (entry.second->offered) offers.push_back(entry.second);
  }
  std::sort(
      offers.begin(), offers.end(),
      [](const inbound_message* a, const inbound_message* b) { return a->id < b->id; });
  for (inbound_message* m : offers) drop(*m);
}

// No receive waits any longer, so that none takes a message that is whole again.
void receiver::close(const std::string& detail) {
  closed_detail_ = detail;
  const std::vector<inbound_message*> taken = pulled_;
  for (inbound_message* m : taken) m->giving_up = true;
  settle();
}

}  // namespace manyworlds::inline v0::detail::host
