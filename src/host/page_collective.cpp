#include "host/page_collective.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "host/collectives.hpp"
#include "host/host_backend.hpp"
#include "manyworlds/detail/assertion.hpp"

namespace manyworlds::inline v0::detail::host {

namespace {

/// How long it sleeps at most once a member has left: the last one to enter may not know
/// that, and wait for the member that has left before it wakes the others.
constexpr duration sleep_beside_leavers = std::chrono::milliseconds(1);

/// Returns the largest payload that any member gives. Returns nothing if the members do
/// not all know it.
std::optional<std::size_t> largest_payload(const collective_shape& shape,
                                           rank_t members) {
  using enum operation_kind;
  const auto all = static_cast<std::size_t>(members);
  switch (shape.kind) {
    case barrier:
      return 0;
    case broadcast:
    case reduce:
    case all_reduce:
    case reduce_scatter:
      return shape.bytes;
    case all_gather:
      return shape.is_variable ? shape.out_parts.longest() : shape.bytes / all;
    case gather:
      if (shape.is_variable) return std::nullopt;
      return shape.bytes;
    case scatter:
    case all_to_all:
      // Where parts differ, a member does not know where its own stands in another's.
      if (shape.is_variable || shape.bytes > shm::page_layout::bytes) return std::nullopt;
      return shape.bytes * all;
    default:
      return std::nullopt;
  }
}

/// Payloads of a kind that go in rounds. Below `above` messages need no more copies;
/// beyond `up_to` one copy out of the giver's memory is faster than two through a page.
struct round_range {
  operation_kind kind;
  std::size_t above;
  std::size_t up_to;
};

// The numbers come from mwbench's collectives, two members on two CPUs. Four members on
// two CPUs lose by rounds, since each costs a switch. In a payload that holds the parts
// of several members a slice would have parts of its own, so these are not here.
constexpr auto round_ranges = [] {
  using enum operation_kind;
  constexpr std::size_t in_kib = 1024;
  return std::array{
      round_range{broadcast, 0, 32 * in_kib},
      round_range{reduce, 0, 32 * in_kib},
      round_range{gather, 0, 32 * in_kib},
      round_range{all_gather, 8 * in_kib, 16 * in_kib},
      round_range{all_reduce, 16 * in_kib, 32 * in_kib},
  };
}();

bool goes_in_rounds(operation_kind kind, std::size_t bytes) noexcept {
  return std::any_of(round_ranges.begin(), round_ranges.end(), [&](const round_range& r) {
    return r.kind == kind && bytes > r.above && bytes <= r.up_to;
  });
}

void copy_payload(std::span<const std::byte> from, std::span<std::byte> into) noexcept {
  MW_ASSERT(from.size() == into.size(), "what is copied fits its place");
  if (!from.empty() && from.data() != into.data()) {
    std::memcpy(into.data(), from.data(), from.size());
  }
}

}  // namespace

bool fits_pages(const collective_shape& shape, rank_t members, bool has_cpus) {
  const std::optional<std::size_t> longest = largest_payload(shape, members);
  if (!longest) return false;
  return *longest <= shm::page_layout::place_bytes ||
         (has_cpus && goes_in_rounds(shape.kind, *longest));
}

page_collective::page_collective(core& shared, schedule& shape,
                                 const page_agreement& links, collectives& owner) noexcept
    : poller(work_kind::brief),
      core_(shared),
      schedule_(shape),
      links_(links),
      owner_(owner) {}

void page_collective::use(page_set pages) {
  MW_ASSERT(!has_pages() && pages.own, "a world has one set of pages");
  pages_ = std::move(pages);
  for (const std::unique_ptr<shm::peer_page>& other : pages_.others) {
    words_.push_back(other ? &other->words() : &pages_.own->words());
  }
  known_.resize(words_.size());
  group_ = shm::page_group(pages_.own->words(), words_, known_,
                           static_cast<std::size_t>(core_.self));
}

void page_collective::begin() {
  MW_ASSERT(has_pages() && !active_, "one collective at a time");
  const collective_shape& s = schedule_.shape();
  const bool is_root = s.root == core_.self;
  switch (s.kind) {
    case operation_kind::broadcast:
    case operation_kind::scatter:
      reads_ = is_root ? reads::none : reads::root;
      break;
    case operation_kind::gather:
    case operation_kind::reduce:
      reads_ = is_root ? reads::all : reads::none;
      break;
    default:
      reads_ = reads::all;
  }
  ++number_;
  active_ = true;
  is_published_ = false;
  next_ = 0;
  round_at_ = 0;
  longest_ = largest_payload(s, core_.size).value_or(0);
  go_on();
  if (active_) watch();
}

void page_collective::watch() {
  if (!std::exchange(is_polled_, true)) core_.home.add(*this);
}

void page_collective::stop() noexcept {
  active_ = false;
  if (std::exchange(is_polled_, false)) core_.home.remove(*this);
}

bool page_collective::poll() noexcept {
  bool did = false;
  try {
    did = go_on();
  } catch (const std::exception& e) {
    // Only the texts of failures take memory.
    stop();
    core_.events.must_break(no_rank, cause::out_of_resources, e.what());
  }
  return did;
}

// Returns whether something was found.
bool page_collective::go_on() {
  bool did = false;
  do {
    if (!active_ || schedule_.is_failing()) return did;
    if (!is_published_) {
      if (!has_room()) return did;
      publish();
      did = true;
      if (schedule_.is_failing()) return true;
    }
    if (!take(did)) return did;
  } while (next_round());
  return true;
}

bool page_collective::next_round() {
  if (round_at_ + slice_bytes >= longest_) {
    stop();
    owner_.page_ended();
    return false;
  }
  round_at_ += slice_bytes;
  ++number_;
  is_published_ = false;
  next_ = 0;
  core_.home.note_long_step();
  return !core_.home.is_turn_used_up();
}

bool page_collective::has_left(rank_t rank) const {
  return any_left_ && core_.backend.has_left(rank);
}

std::span<const std::byte> page_collective::given() const noexcept {
  const collective_shape& s = schedule_.shape();
  switch (s.kind) {
    case operation_kind::broadcast:
    case operation_kind::scatter:
      return s.root == core_.self ? slice_of(s.in) : std::span<const std::byte>();
    case operation_kind::gather:
      return s.root == core_.self ? std::span<const std::byte>() : slice_of(s.in);
    default:
      // A reduction takes this member's own contribution from its page too: the result
      // may stand where it was.
      return slice_of(s.in);
  }
}

std::size_t page_collective::expected_from(rank_t rank) const noexcept {
  const std::size_t whole = payload_from(rank);
  return std::min(whole - std::min(round_at_, whole), slice_bytes);
}

std::size_t page_collective::payload_from(rank_t rank) const noexcept {
  const collective_shape& s = schedule_.shape();
  switch (s.kind) {
    case operation_kind::barrier:
      return 0;
    case operation_kind::broadcast:
      return s.out.size();
    case operation_kind::scatter:
      return s.out.size() * static_cast<std::size_t>(core_.size);
    case operation_kind::gather:
    case operation_kind::all_gather:
      return s.out_parts.bytes(rank);
    default:
      return s.in.size();
  }
}

// The entry and the place are free once all others have entered something later than
// what stands there. A member that has left reads nothing any longer.
std::uint64_t page_collective::room_wanted() const noexcept {
  const std::uint64_t wanted = shm::page_group::room_for(number_);
  const std::uint64_t used = place_used_[next_place_];
  if (given().size() <= shm::page_inline_bytes || used == 0) return wanted;
  return std::max(wanted, used + 1);
}

bool page_collective::has_room() {
  const std::uint64_t wanted = room_wanted();
  if (wanted == 0) return true;
  for (rank_t rank = 0; rank < core_.size; ++rank) {
    if (rank == core_.self) continue;
    if (!group_.has_entered(static_cast<std::size_t>(rank), wanted) && !has_left(rank)) {
      return false;
    }
  }
  return true;
}

void page_collective::publish() {
  if (lost_a_reader()) return;
  const std::span<const std::byte> gives = given();
  std::uint64_t place = shm::page_layout::in_entry;
  std::byte* at = group_.entry_for(number_).payload.data();
  if (gives.size() > shm::page_inline_bytes) {
    MW_ASSERT(gives.size() <= shm::page_layout::place_bytes, "a payload fits its place");
    place = next_place_;
    at = pages_.own->place(next_place_);
    place_used_[next_place_] = number_;
    next_place_ = (next_place_ + 1) % shm::page_layout::places;
  }
  if (!gives.empty()) std::memcpy(at, gives.data(), gives.size());
  group_.publish(number_, schedule_.signature().word(), place << 32 | gives.size());
  is_published_ = true;
  group_.wake_sleepers(number_, [this](std::size_t rank) {
    links_.link_to(static_cast<rank_t>(rank))->wake_sleeper();
  });
  if (round_at_ == 0 && !is_contradicted()) copy_own();
}

// Of two members that disagree the later one finds it here, whether or not it reads what
// the other gives.
bool page_collective::is_contradicted() {
  // With one other member, which is looked at anyway, this would be twice the same.
  if (core_.size == 2 && reads_ != reads::none) return false;
  for (rank_t rank = 0; rank < core_.size; ++rank) {
    if (rank == core_.self) continue;
    const shm::page_look seen = group_.look(static_cast<std::size_t>(rank), number_);
    if (seen.number != number_) continue;
    const collective_signature theirs(seen.signature);
    if (schedule_.signature().agrees_with(theirs)) continue;
    fail(rank, cause::mismatch, {}, theirs);
    return true;
  }
  return false;
}

// Returns whether a member that should get something from this one has left without it.
bool page_collective::lost_a_reader() {
  if (!any_left_ || reads_ == reads::all) return false;
  const collective_shape& s = schedule_.shape();
  for (rank_t rank = 0; rank < core_.size; ++rank) {
    const bool is_reader = s.root == core_.self ? rank != core_.self : rank == s.root;
    if (!is_reader || !has_left(rank)) continue;
    if (group_.has_entered(static_cast<std::size_t>(rank), number_)) continue;
    fail(rank, cause::closed, has_left_text(rank));
    return true;
  }
  return false;
}

void page_collective::copy_own() {
  const collective_shape& s = schedule_.shape();
  switch (s.kind) {
    case operation_kind::gather:
    case operation_kind::all_gather:
      if (reads_ == reads::all) copy_payload(s.in, s.out_parts.of(s.out, core_.self));
      return;
    case operation_kind::scatter:
      if (s.root == core_.self) copy_payload(s.in_parts.of(s.in, core_.self), s.out);
      return;
    case operation_kind::all_to_all:
      return copy_payload(s.in_parts.of(s.in, core_.self),
                          s.out_parts.of(s.out, core_.self));
    default:
      return;
  }
}

// Takes what has come of this round, by rank. Returns whether all is there; `did` tells
// whether anything was.
bool page_collective::take(bool& did) {
  if (reads_ == reads::none) return true;
  if (reads_ == reads::root) return take_from(schedule_.shape().root);
  for (; next_ < core_.size; ++next_) {
    if (!take_from(next_)) return false;
    did = true;
  }
  return true;
}

bool page_collective::take_from(rank_t rank) {
  std::span<const std::byte> payload;
  if (rank == core_.self) {
    payload = given();
    if (reduces(schedule_.shape().kind)) {
      const shm::page_look own = group_.look(static_cast<std::size_t>(rank), number_);
      const std::byte* const at =
          own.place() == shm::page_layout::in_entry
              ? group_.inline_payload(static_cast<std::size_t>(rank), number_)
              : pages_.own->place(static_cast<unsigned>(own.place()));
      payload = {at, payload.size()};
      take_payload(rank, payload);
    }
    return true;
  }
  const looked found = look_at(rank, payload);
  if (found == looked::entered) take_payload(rank, payload);
  return found == looked::entered;
}

page_collective::looked page_collective::look_at(rank_t rank,
                                                 std::span<const std::byte>& payload) {
  const auto at = static_cast<std::size_t>(rank);
  // Asked first: what a member entered before it left is seen by the look after it.
  const bool left = has_left(rank);
  const shm::page_look seen = group_.look(at, number_);
  if (seen.number != number_) {
    if (seen.number > number_) [[unlikely]] {
      fail(rank, cause::protocol_error,
           fmt::format("rank {} has overwritten in its page what others still read",
                       rank));
      return looked::failed;
    }
    // Seen before to have entered, it would keep this member from sleeping (law 7).
    if (group_.is_known_to_have_entered(at, number_)) [[unlikely]] {
      fail(rank, cause::protocol_error,
           fmt::format("rank {} has taken back what it entered in its page", rank));
      return looked::failed;
    }
    if (!left) return looked::absent;
    fail(rank, cause::closed, has_left_text(rank));
    return looked::failed;
  }
  const collective_signature theirs(seen.signature);
  if (!schedule_.signature().agrees_with(theirs)) [[unlikely]] {
    fail(rank, cause::mismatch, {}, theirs);
    return looked::failed;
  }
  const std::size_t expected = expected_from(rank);
  if (seen.bytes() != expected) [[unlikely]] {
    fail(rank, cause::mismatch,
         fmt::format(": a message of {} bytes where {} were expected", seen.bytes(),
                     expected),
         theirs);
    return looked::failed;
  }
  if (expected == 0) return looked::entered;
  const bool is_inline = seen.place() == shm::page_layout::in_entry;
  const bool fits = is_inline ? expected <= shm::page_inline_bytes
                              : seen.place() < shm::page_layout::places;
  if (!fits || expected > shm::page_layout::place_bytes) [[unlikely]] {
    fail(rank, cause::protocol_error,
         fmt::format("rank {} wrote a place into its page that there is not", rank));
    return looked::failed;
  }
  payload = {is_inline ? group_.inline_payload(at, number_)
                       : pages_.others[at]->place(seen.place()),
             expected};
  return looked::entered;
}

void page_collective::take_payload(rank_t rank, std::span<const std::byte> payload) {
  const collective_shape& s = schedule_.shape();
  switch (s.kind) {
    case operation_kind::broadcast:
      return copy_payload(payload, slice_of(s.out));
    case operation_kind::scatter:
      return copy_payload(
          payload.subspan(static_cast<std::size_t>(core_.self) * s.out.size(),
                          s.out.size()),
          s.out);
    case operation_kind::gather:
    case operation_kind::all_gather:
      return copy_payload(payload, slice_of(s.out_parts.of(s.out, rank)));
    case operation_kind::all_to_all:
      return copy_payload(s.in_parts.of(payload, core_.self),
                          s.out_parts.of(s.out, rank));
    case operation_kind::reduce_scatter:
      return combine(rank, s.in_parts.of(payload, core_.self));
    case operation_kind::reduce:
    case operation_kind::all_reduce:
      return combine(rank, payload);
    default:
      return;
  }
}

// In the order of ranks, at every member: the same bits everywhere.
void page_collective::combine(rank_t rank, std::span<const std::byte> payload) {
  const std::span<std::byte> out = slice_of(schedule_.shape().out);
  if (rank == 0) {
    first_ = payload;
    return;
  }
  schedule_.combine(rank == 1 ? first_ : std::span<const std::byte>(out), payload, out);
  if (rank == core_.size - 1) schedule_.finish_reduction(out);
}

void page_collective::fail(rank_t rank, enum cause why, std::string detail,
                           collective_signature theirs) {
  stop();
  schedule_.fail({rank, why, std::move(detail), theirs});
}

void page_collective::peer_left() {
  any_left_ = true;
  go_on();
}

// Says whether what `prepare_sleep` announces has come.
bool page_collective::has_come() {
  if (!is_published_) return has_room();
  if (reads_ == reads::root) {
    return group_.has_entered(static_cast<std::size_t>(schedule_.shape().root), number_);
  }
  return group_.all_have_entered(number_);
}

bool page_collective::prepare_sleep(std::optional<duration>& limit) noexcept {
  if (!active_ || schedule_.is_failing()) return true;
  // A root wakes those that wait for it by itself, even if others have left (law 7).
  const bool waits_for_root = is_published_ && reads_ == reads::root;
  if (any_left_ && !waits_for_root)
    limit = std::min(limit.value_or(sleep_beside_leavers), sleep_beside_leavers);
  std::uint64_t waits = shm::page_wait::for_all(number_);
  if (waits_for_root) {
    waits = shm::page_wait::for_member(static_cast<std::size_t>(schedule_.shape().root),
                                       number_);
  } else if (!is_published_) {
    waits = shm::page_wait::for_all(room_wanted());
  }
  return group_.prepare_sleep(waits, [this] { return has_come(); });
}

void page_collective::cancel_sleep() noexcept { group_.cancel_sleep(); }

}  // namespace manyworlds::inline v0::detail::host
