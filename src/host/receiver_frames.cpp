// What each frame about a message does to its receiver. All frames are read as if a
// stranger wrote them.
#include <algorithm>
#include <utility>
#include <vector>

#include "host/receiver.hpp"
#include "manyworlds/detail/assertion.hpp"

namespace manyworlds::inline v0::detail::host {

const char* receiver::check_id(const frame& f) const {
  return f.id > last_id_ ? "a message that was not announced" : nullptr;
}

inbound_message* receiver::find(std::uint64_t id) {
  const auto found = named_.find(id);
  return found == named_.end() ? nullptr : found->second;
}

const char* receiver::on_message(const frame& f, std::span<const std::byte> content) {
  MW_ASSERT(content.size() == content_bytes(f),
            "a transport hands on a message with all of its content");
  if (f.id != last_id_ + 1) return "a message out of sequence";
  last_id_ = f.id;
  if (ignoring_) return nullptr;
  if (f.on > (lane::reserved | core::own_lanes)) [[unlikely]]
    return "a message on a reserved lane that does not exist";
  const bool offered = f.kind == frame_kind::offer;
  std::size_t cost = message_cost + content.size();
  const bool may_be_kept = offered && f.generation == offer_may_be_kept;
  if (may_be_kept) cost += f.bytes;
  const bool granted = (f.generation & (offered ? offer_granted : eager_granted)) != 0;
  if (granted) [[unlikely]] {
    if (grants_ == 0) return "a message without a window that was not asked for";
    --grants_;
    cost = 0;
    if (is_tight_ && core_.matcher->waits_for_fresh_lanes(peer_)) {
      worth_saying_ = 0;
      ready_for_fresh_ = true;
    }
  }
  inbound_lane& l = core_.matcher->lane_of(peer_, f.on);
  if (!is_within_windows(l, cost)) {
    return "more unreceived data than the window allows";
  }
  l.held_bytes += cost;
  if (!core::is_own(f.on)) held_bytes_ += cost;

  // All messages share one object: to clear a new one would cost each message 8 ns.
  // This sets what matching reads, or changes before the message is kept.
  inbound_message& m = arriving_;
  m.source = peer_;
  m.on = &l;
  m.id = f.id;
  m.user = f.word;
  m.type = f.type;
  m.head_bytes = f.head_bytes;
  m.payload_bytes = static_cast<std::size_t>(f.bytes);
  m.cost = cost;
  m.content = content;
  m.head_taken = false;
  m.is_settled = false;
  m.has_payload = f.bytes > 0 || f.head_bytes == 0 ||
                  (!offered && (f.generation & eager_empty_payload) != 0);
  m.offered = offered;
  m.may_be_kept = may_be_kept;
  m.granted = granted;
  m.wants_taken = offered || (f.generation & eager_wants_taken) != 0;
  m.on_device = !offered && (f.generation & eager_on_device) != 0;
  if (m.on_device) [[unlikely]] {
    const auto prefix = decode_prefix(content.subspan(f.head_bytes));
    if (!prefix) return "an invalid description of a payload";
    m.prefix = *prefix;
  }
  m.is_accounted = !m.wants_taken;
  m.accounted = m.is_accounted ? content.size() : 0;
  const bool is_collective = f.on == core::collective_lane;
  if (m.offered) {
    if (is_collective) core_.note_collective_message(peer_, f.word);
    // It is named before it is matched: a receive that waits pulls it at once.
    inbound_message* kept = core_.matcher->keep(m);
    kept->came = core_.home.recently();
    MW_ASSERT(kept->is_kept && kept->id == last_id_,
              "the newest message is the one kept");
    named_[f.id] = kept;
    const bool must_be_taken = granted || l.is_discarded;
    core_.matcher->announce(*kept);
    if (!must_be_taken) return nullptr;
    if (inbound_message* left = find(f.id)) dismiss(*left);
  } else if (inbound_message* kept = core_.matcher->arrive(m)) {
    kept->came = core_.home.recently();
    if (kept->wants_taken) named_[f.id] = kept;
    if (is_collective) core_.note_collective_message(peer_, f.word);
    if (granted || kept->on->is_discarded) dismiss(*kept);
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
  if (f.word != m->received || f.bytes > m->payload_bytes - m->received) {
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
  owes_now_ = true;
  worth_saying_ = std::min<std::size_t>(worth_saying_, 1);
  drop(*m);
  return nullptr;
}

void receiver::drop(inbound_message& m) {
  named_.erase(m.id);
  std::erase(pulled_, &m);
  let_go(m);
  // No receive has seen anything of what was collected.
  if (std::exchange(m.collecting, false)) m.received = 0;
  core_.matcher->withdraw(m, closed_detail_);
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
