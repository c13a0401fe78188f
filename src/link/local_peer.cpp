#include "link/local_peer.hpp"

#include <fmt/format.h>

#include <cstring>
#include <utility>

#include "link/local_discovery.hpp"
#include "link/shared_link.hpp"
#include "link/wire.hpp"
#include "manyworlds/coro/when_any.hpp"
#include "manyworlds/coro/within.hpp"
#include "manyworlds/detail/assertion.hpp"

namespace manyworlds::inline v0::detail::shm {

namespace {

using namespace std::chrono_literals;

constexpr duration request_limit = 500ms;
constexpr std::size_t longest_reason = 256;

enum class outcome_kind : std::uint8_t { paired, elsewhere, refused };

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

constexpr const char* no_liveness_futex =
    "is not read, since no robust futex tells of its death: its large messages are "
    "copied through shared memory, which is slower; usual cause: a sandbox that refuses "
    "set_robust_list";

liveness_futex& liveness_of_peer(shm_segment& segment) noexcept {
  return *reinterpret_cast<liveness_futex*>(
      segment.at(offset::liveness(segment.peer_side())));
}

/// Says whether the peer holds its futex; it does so before we can see the segment, or
/// never. Only that futex tells at no cost that a process with the peer's pid is the
/// peer (see remote_memory). Without it the receiver asks for payloads and does not
/// read them.
bool is_held_by_peer(shm_segment& segment) noexcept {
  return liveness_of_peer(segment).load(std::memory_order_acquire) != 0;
}

void read_nonce(wire_reader& in, nonce& into) {
  std::memcpy(into.data(), in.take(into.size()).data(), into.size());
}

}  // namespace

local_peer::~local_peer() = default;

// --- pairing

void local_peer::begin_pairing() {
  MW_ASSERT(stage_ == stage::fresh, "a link begins to pair once");
  wire_writer out;
  const std::string refusal = discovery_.listening_refusal();
  if (refusal.empty()) {
    nonces_ = discovery_.pairing().make_nonces();
    stage_ = stage::expecting;
    out.put(std::uint8_t{1}).put_raw(nonces_.request).put_raw(nonces_.reply);
  } else {
    out.put(std::uint8_t{0}).put(refusal);
    end_pairing();
  }
  link_.queue(link::frame::pairing_nonces, out.view());
}

void local_peer::take_nonces(std::span<const std::byte> body) {
  if (stage_ != stage::fresh) throw wire_error("nonces that were not expected");
  wire_reader in(body);
  const bool may_request = in.get<std::uint8_t>() != 0;
  if (!may_request) {
    const std::string why_not(in.get_text(longest_reason));
    in.expect_end();
    note_refusal(false, why_not);
    return end_pairing();
  }
  pairing_nonces nonces;
  read_nonce(in, nonces.request);
  read_nonce(in, nonces.reply);
  in.expect_end();
  const std::string refusal = discovery_.refusal();
  if (!refusal.empty()) {
    tell_outcome(false, false, refusal);
    return end_pairing();
  }
  stage_ = stage::requesting;
  discovery_.owner().spawn(request_pairing(link_.shared_from_this(), nonces));
}

task<void> local_peer::request_pairing(std::shared_ptr<link> l, pairing_nonces nonces) {
  local_peer& self = l->local();
  std::string why_not;
  std::optional<shared_parts> parts = co_await self.discovery_.pairing().request(
      l->peer().id, nonces, request_limit, why_not);
  if (self.stage_ != stage::requesting) co_return;
  if (parts) {
    self.share(std::move(*parts));
    self.tell_outcome(true, false, {});
  } else {
    const bool is_elsewhere = why_not == pairing::elsewhere;
    self.tell_outcome(false, is_elsewhere, why_not);
    self.note_refusal(is_elsewhere, why_not);
  }
  self.end_pairing();
}

void local_peer::tell_outcome(bool paired, bool is_elsewhere,
                              const std::string& why_not) {
  wire_writer out;
  out.put(paired         ? outcome_kind::paired
          : is_elsewhere ? outcome_kind::elsewhere
                         : outcome_kind::refused);
  out.put(std::string_view(why_not).substr(0, longest_reason));
  link_.queue(link::frame::pairing_outcome, out.view());
}

const pairing_nonces* local_peer::expected_nonces() const noexcept {
  return stage_ == stage::expecting && !unconfirmed_ ? &nonces_ : nullptr;
}

void local_peer::keep_request(shared_parts parts) {
  MW_ASSERT(expected_nonces(), "only an expected request is kept");
  unconfirmed_ = std::make_unique<shared_parts>(std::move(parts));
}

void local_peer::take_outcome(std::span<const std::byte> body) {
  if (stage_ != stage::expecting) throw wire_error("an outcome of no pairing");
  wire_reader in(body);
  const auto kind = in.get_enum(outcome_kind::refused);
  const std::string why_not(in.get_text(longest_reason));
  in.expect_end();
  const std::unique_ptr<shared_parts> brought = std::move(unconfirmed_);
  if (kind != outcome_kind::paired) {
    note_refusal(kind == outcome_kind::elsewhere, why_not);
  } else if (brought) {
    share(std::move(*brought));
  } else {
    throw wire_error("the peer says that it has paired, and has not");
  }
  end_pairing();
}

void local_peer::note_refusal(bool is_elsewhere, const std::string& why_not) {
  // Sharing that is turned off here needs no explanation.
  if (!discovery_.refusal().empty()) return;
  std::string line = fmt::format("no memory is shared with {}, tcp is used: {}",
                                 link_.peer().text(), why_not);
  if (is_elsewhere || why_not == local_discovery::turned_off) {
    discovery_.owner().log(is_elsewhere ? log_level::debug : log_level::info,
                           std::move(line));
  } else {
    discovery_.log_refusal(why_not, std::move(line));
  }
}

void local_peer::end_pairing() noexcept {
  stage_ = stage::known;
  pairing_ended_.set();
}

task<bool> local_peer::paired(time_point deadline) {
  try {
    co_await within(pairing_ended_.wait(), deadline - discovery_.service().now());
  } catch (const timed_out&) {
    // An unknown outcome means tcp; the peer accepts either.
  }
  co_return shares_memory();
}

void local_peer::share(shared_parts parts) {
  MW_ASSERT(!shared_ && !beats_ && parts.segment, "memory is shared once");
  MW_ASSERT(discovery_.owner().user(), "memory is shared only for a user reactor");
  std::string refusal;
  if (parts.memory && !is_held_by_peer(*parts.segment)) {
    // Another process could get the pid of a peer before we hear of its death.
    parts.memory.reset();
    refusal = no_liveness_futex;
  } else if (!parts.memory && parts.memory_refusal != 0) {
    refusal = unreadable_text(parts.memory_refusal);
  }
  if (!refusal.empty()) {
    discovery_.log_refusal(refusal,
                           "the memory of " + link_.peer().text() + " " + refusal);
  }
  liveness_ = std::move(parts.liveness);
  std::unique_ptr<process_watch> process = std::move(parts.process);
  reactor& user = *discovery_.owner().user();
  shm_segment& segment = *parts.segment;
  const auto line = [&segment](int side) -> beat_line& {
    return *reinterpret_cast<beat_line*>(segment.at(offset::beat(side)));
  };
  beats_.emplace(line(segment.side()), line(segment.peer_side()));
  shared_ = std::make_shared<shared_link>(user, user.sockets(), std::move(parts),
                                          discovery_.pools(), discovery_.copy_thread());
  slots_ = std::make_shared<slot_pool>(shared_->side());
  watch_for_death(std::move(process));
}

bool local_peer::is_readable() const noexcept { return shared_ && shared_->reads_peer(); }

// --- slots

shm_slot local_peer::allocate_slot(std::uint64_t world_id, rank_t rank) {
  if (!shared_) return {};
  return_slots();
  // Queueing the returns may have ended the link.
  if (!shared_) return {};
  const std::optional<unsigned> index = slots_->find_free();
  std::string trouble = "all its slots are in use";
  if (index) {
    const std::size_t begin = offset::ring(*index, 0);
    constexpr std::size_t size = sides * sizeof(cell_ring);
    const int error = shared_->segment().reserve(begin, size);
    if (error == 0) {
      std::memset(shared_->segment().at(begin), 0, size);
      slots_->take(*index);
      shared_->owners_out().note_in_use(*index);
      shm_slot slot(shared_, *index, slots_);
      wire_writer out;
      out.put(world_id).put(rank).put(static_cast<std::uint16_t>(*index));
      link_.queue(link::frame::slot, out.view());
      return slot;
    }
    trouble = std::strerror(error);
  }
  if (!std::exchange(said_full_, true)) {
    discovery_.owner().log(
        log_level::warning,
        fmt::format("no place in the memory shared with {}, tcp is used "
                    "for some worlds: {}",
                    link_.peer().text(), trouble));
  }
  return {};
}

void local_peer::take_slot(std::span<const std::byte> body) {
  if (!shared_) throw wire_error("a slot, and no memory is shared");
  wire_reader in(body);
  const auto world_id = in.get<std::uint64_t>();
  const auto rank = in.get<rank_t>();
  const unsigned index = in.get<std::uint16_t>();
  in.expect_end();
  slots_->take_from_peer(index);
  shared_->owners_out().note_in_use(index);
  shm_slot slot(shared_, index, slots_);
  link_.told_.slot_offered(link_.shared_from_this(), world_id, rank, std::move(slot));
  return_slots();
  share_what_is_left();
}

void local_peer::take_returns(std::span<const std::byte> body) {
  if (!shared_) throw wire_error("slots are given back, and no memory is shared");
  const slot_set slots = read_slots(body);
  slots_->peer_gave_back(slots);
  shared_->owners_out().note_given_back(slots);
  share_what_is_left();
}

void local_peer::take_ceded(std::span<const std::byte> body) {
  if (!shared_) throw wire_error("slots are ceded, and no memory is shared");
  slots_->take_ceded(read_slots(body));
}

void local_peer::return_slots() {
  if (!shared_) return;
  const slot_set returns = slots_->collect_returns();
  if (returns.empty()) return;
  wire_writer out;
  write_slots(out, returns);
  link_.queue(link::frame::slots_returned, out.view());
  share_what_is_left();
}

void local_peer::share_what_is_left() {
  const slot_set ceded = slots_->cede();
  if (ceded.empty()) return;
  wire_writer out;
  write_slots(out, ceded);
  link_.queue(link::frame::slots_ceded, out.view());
}

// --- the peer's end

void local_peer::watch_for_death(std::unique_ptr<process_watch> process) {
  MW_ASSERT(death_ == death_notices::ticket::none, "a peer's liveness is watched once");
  death_ = discovery_.deaths().add(liveness_of_peer(shared_->segment()),
                                   [this] { link_.note_death("its liveness futex"); });
  if (!process) return;
  if (process->is_watching()) {
    discovery_.owner().spawn(
        until_process_ends(link_.shared_from_this(), std::move(process)));
  } else {
    discovery_.owner().log(log_level::debug, process->error_message());
  }
}

task<void> local_peer::until_process_ends(std::shared_ptr<link> l,
                                          std::unique_ptr<process_watch> process) {
  co_await when_any(process->ended(l->local().discovery_.service()), l->over_.wait());
  if (process->has_ended()) l->note_death("its process handle");
}

void local_peer::close() noexcept {
  end_pairing();
  unconfirmed_.reset();
  discovery_.deaths().remove(std::exchange(death_, death_notices::ticket::none));
  liveness_.reset();
  beats_.reset();
  shared_.reset();
}

}  // namespace manyworlds::inline v0::detail::shm
