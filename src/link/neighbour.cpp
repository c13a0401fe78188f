#include "link/neighbour.hpp"

#include <fmt/format.h>

#include <cstring>
#include <utility>

#include "link/neighbourhood.hpp"
#include "link/shared_link.hpp"
#include "link/wire.hpp"
#include "manyworlds/coro/within.hpp"
#include "manyworlds/detail/assertion.hpp"

namespace manyworlds::inline v0::detail::shm {

namespace {

using namespace std::chrono_literals;

constexpr duration visit_limit = 500ms;
constexpr std::size_t longest_reason = 256;

enum class outcome_kind : std::uint8_t { met, elsewhere, refused };

void write_slots(wire_writer& out, const slot_set& slots) {
  for (std::size_t at = 0; at < slot_set::words; ++at) out.put(slots.word(at));
}

slot_set read_slots(std::span<const std::byte> body) {
  wire_reader in(body);
  slot_set slots;
  for (std::size_t at = 0; at < slot_set::words; ++at)
    slots.word(at) = in.get<std::uint64_t>();
  in.expect_end();
  return slots;
}

void read_nonce(wire_reader& in, nonce& into) {
  std::memcpy(into.data(), in.take(into.size()).data(), into.size());
}

}  // namespace

neighbour::~neighbour() = default;

// --- meeting

void neighbour::invite() {
  MW_ASSERT(stage_ == stage::fresh, "a link invites once");
  wire_writer out;
  const std::string objection = all_.listening_objection();
  if (objection.empty()) {
    words_ = all_.place().invite();
    stage_ = stage::expecting;
    out.put(std::uint8_t{1}).put_raw(words_.visitor).put_raw(words_.host);
  } else {
    out.put(std::uint8_t{0}).put(objection);
    settle();
  }
  link_.queue(link::frame::invitation, out.view());
}

void neighbour::take_invitation(std::span<const std::byte> body) {
  if (stage_ != stage::fresh) throw wire_error("an invitation that was not expected");
  wire_reader in(body);
  const bool is_welcome = in.get<std::uint8_t>() != 0;
  if (!is_welcome) {
    const std::string why_not(in.get_text(longest_reason));
    in.expect_end();
    note_refusal(false, why_not);
    return settle();
  }
  invitation words;
  read_nonce(in, words.visitor);
  read_nonce(in, words.host);
  in.expect_end();
  const std::string objection = all_.objection();
  if (!objection.empty()) {
    tell_outcome(false, false, objection);
    return settle();
  }
  stage_ = stage::visiting;
  all_.owner().spawn(visit(link_.shared_from_this(), words));
}

task<void> neighbour::visit(std::shared_ptr<link> l, invitation words) {
  neighbour& self = l->on_host();
  std::string why_not;
  std::optional<shared_parts> parts =
      co_await self.all_.place().visit(l->peer().id, words, visit_limit, why_not);
  if (self.stage_ != stage::visiting) co_return;
  if (parts) {
    self.share(std::move(*parts));
    self.tell_outcome(true, false, {});
  } else {
    const bool is_elsewhere = why_not == meeting_place::elsewhere;
    self.tell_outcome(false, is_elsewhere, why_not);
    self.note_refusal(is_elsewhere, why_not);
  }
  self.settle();
}

void neighbour::tell_outcome(bool met, bool is_elsewhere, const std::string& why_not) {
  wire_writer out;
  out.put(met            ? outcome_kind::met
          : is_elsewhere ? outcome_kind::elsewhere
                         : outcome_kind::refused);
  out.put(std::string_view(why_not).substr(0, longest_reason));
  link_.queue(link::frame::local_outcome, out.view());
}

const invitation* neighbour::expected() const noexcept {
  return stage_ == stage::expecting && !visitor_ ? &words_ : nullptr;
}

void neighbour::receive(shared_parts parts) {
  MW_ASSERT(expected(), "only an invited visitor is received");
  visitor_ = std::make_unique<shared_parts>(std::move(parts));
}

void neighbour::take_outcome(std::span<const std::byte> body) {
  if (stage_ != stage::expecting) throw wire_error("an outcome of no visit");
  wire_reader in(body);
  const auto kind = in.get_enum(outcome_kind::refused);
  const std::string why_not(in.get_text(longest_reason));
  in.expect_end();
  const std::unique_ptr<shared_parts> visitor = std::move(visitor_);
  if (kind != outcome_kind::met) {
    note_refusal(kind == outcome_kind::elsewhere, why_not);
  } else if (visitor) {
    share(std::move(*visitor));
  } else {
    throw wire_error("the peer says that it has visited, and has not");
  }
  settle();
}

void neighbour::note_refusal(bool is_elsewhere, const std::string& why_not) {
  // Sharing that is turned off here needs no explanation.
  if (!all_.objection().empty()) return;
  std::string line = fmt::format("no memory is shared with {}, tcp is used: {}",
                                 link_.peer().text(), why_not);
  if (is_elsewhere || why_not == neighbourhood::turned_off) {
    all_.owner().remark(is_elsewhere ? log_level::debug : log_level::info,
                        std::move(line));
  } else {
    all_.remark_refusal(why_not, std::move(line));
  }
}

void neighbour::settle() noexcept {
  stage_ = stage::known;
  settled_.set();
}

task<bool> neighbour::settled(time_point deadline) {
  try {
    co_await within(settled_.wait(), deadline - all_.service().now());
  } catch (const timed_out&) {
    // An unknown outcome means tcp; the peer accepts either.
  }
  co_return is_local();
}

// --- slots

slot_lease neighbour::lend(std::uint64_t world_id, rank_t rank) {
  if (!shared_) return {};
  return_slots();
  // Queueing the returns may have ended the link.
  if (!shared_) return {};
  const std::optional<unsigned> slot = slots_->find_free();
  std::string trouble = "all its slots are in use";
  if (slot) {
    const std::size_t begin = offset::ring(*slot, 0);
    constexpr std::size_t size = sides * sizeof(cell_ring);
    const int error = shared_->arena().reserve(begin, size);
    if (error == 0) {
      std::memset(shared_->arena().at(begin), 0, size);
      slots_->take(*slot);
      shared_->owners_out().note_lent(*slot);
      slot_lease lease(shared_, *slot, slots_);
      wire_writer out;
      out.put(world_id).put(rank).put(static_cast<std::uint16_t>(*slot));
      link_.queue(link::frame::slot, out.view());
      return lease;
    }
    trouble = std::strerror(error);
  }
  if (!std::exchange(said_full_, true)) {
    all_.owner().remark(log_level::warning,
                        fmt::format("no place in the memory shared with {}, tcp is used "
                                    "for some worlds: {}",
                                    link_.peer().text(), trouble));
  }
  return {};
}

void neighbour::take_slot(std::span<const std::byte> body) {
  if (!shared_) throw wire_error("a slot, and no memory is shared");
  wire_reader in(body);
  const auto world_id = in.get<std::uint64_t>();
  const auto rank = in.get<rank_t>();
  const unsigned slot = in.get<std::uint16_t>();
  in.expect_end();
  slots_->take_from_peer(slot);
  shared_->owners_out().note_lent(slot);
  slot_lease lease(shared_, slot, slots_);
  link_.events_.slot_offered(link_.shared_from_this(), world_id, rank, std::move(lease));
  return_slots();
  share_what_is_left();
}

void neighbour::take_returns(std::span<const std::byte> body) {
  if (!shared_) throw wire_error("slots are given back, and no memory is shared");
  const slot_set slots = read_slots(body);
  slots_->peer_gave_back(slots);
  shared_->owners_out().note_given_back(slots);
  share_what_is_left();
}

void neighbour::take_ceded(std::span<const std::byte> body) {
  if (!shared_) throw wire_error("slots are ceded, and no memory is shared");
  slots_->take_ceded(read_slots(body));
}

void neighbour::return_slots() {
  if (!shared_) return;
  const slot_set returns = slots_->collect_returns();
  if (returns.empty()) return;
  wire_writer out;
  write_slots(out, returns);
  link_.queue(link::frame::slots_returned, out.view());
  share_what_is_left();
}

void neighbour::share_what_is_left() {
  const slot_set ceded = slots_->cede();
  if (ceded.empty()) return;
  wire_writer out;
  write_slots(out, ceded);
  link_.queue(link::frame::slots_ceded, out.view());
}

}  // namespace manyworlds::inline v0::detail::shm
