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

/// Returns whether what one member gives are parts, one for each.
bool gives_parts(operation_kind kind) noexcept {
  return kind == operation_kind::scatter || kind == operation_kind::all_to_all;
}

/// Returns whether a member reads what each other one gives, or the root does.
bool reads_from_all(operation_kind kind) noexcept {
  using enum operation_kind;
  return kind == all_gather || kind == all_reduce || kind == gather || kind == reduce;
}

/// A slice of each of these many parts is a round: with more the slices are short.
constexpr rank_t most_parts = 8;

/// Returns the largest payload, with all its parts, that goes in rounds, or the largest
/// sum of the others' where a member reads from all: beyond that one copy out of their
/// memory is faster than two through a page.
///
/// The numbers come from mwbench's collectives, two members on two CPUs, near and far.
/// Four members on two CPUs lose by rounds, since each costs a switch. A slice of each
/// part is half a place at most: a reduce_scatter loses by that, since its messages
/// reduce what comes.
constexpr std::size_t most_in_rounds(operation_kind kind) noexcept {
  using enum operation_kind;
  constexpr std::size_t in_kib = 1024;
  switch (kind) {
    case broadcast:
    case reduce:
      return 1024 * in_kib;
    case all_reduce:
      return 512 * in_kib;
    case gather:
      return 256 * in_kib;
    case all_gather:
      return 128 * in_kib;
    case scatter:
    case all_to_all:
      return 64 * in_kib;
    default:
      return 0;
  }
}

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
      if (shape.is_variable) return std::nullopt;
      return shape.bytes * all;
    default:
      return std::nullopt;
  }
}

/// `payload` is the largest that any member gives.
bool goes_in_rounds(const collective_shape& shape, std::size_t payload, rank_t members) {
  if (gives_parts(shape.kind) && members > most_parts) return false;
  // The numbers are of two members: of more, those who read all read more.
  const std::size_t read = reads_from_all(shape.kind)
                               ? payload * static_cast<std::size_t>(members - 1)
                               : payload;
  return read <= most_in_rounds(shape.kind);
}

void copy_all(std::span<const std::byte> from, std::span<std::byte> into) noexcept {
  MW_ASSERT(from.size() == into.size(), "what is copied fits its place");
  if (!from.empty() && from.data() != into.data()) {
    copy_payload(into.data(), from.data(), from.size());
  }
}

}  // namespace

bool fits_pages(const collective_shape& shape, rank_t members, bool has_cpus) {
  const std::optional<std::size_t> longest = largest_payload(shape, members);
  if (!longest) return false;
  return *longest <= shm::page_layout::place_bytes ||
         (has_cpus && goes_in_rounds(shape, *longest, members));
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
  taken_.resize(words_.size());
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
  const std::size_t payload = largest_payload(s, core_.size).value_or(0);
  const auto members = static_cast<std::size_t>(core_.size);
  is_by_parts_ = gives_parts(s.kind) && payload > shm::page_layout::place_bytes;
  longest_ = is_by_parts_ ? payload / members : payload;
  slice_ = shm::page_layout::place_bytes;
  if (is_by_parts_) slice_ = slice_ / members / shm::line_size * shm::line_size;
  MW_ASSERT(slice_ > 0, "a round brings something");
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
  if (round_at_ + slice_ >= longest_) {
    stop();
    owner_.page_ended();
    return false;
  }
  round_at_ += slice_;
  ++number_;
  is_published_ = false;
  next_ = 0;
  core_.home.note_long_step();
  return !core_.home.is_turn_used_up();
}

bool page_collective::has_left(rank_t rank) const {
  return any_left_ && core_.backend.has_left(rank);
}

// What this member gives, in all rounds. A reduction takes its own contribution from its
// page too: the result may stand where it was.
std::size_t page_collective::payload_given() const noexcept {
  const collective_shape& s = schedule_.shape();
  const bool is_root = s.root == core_.self;
  switch (s.kind) {
    case operation_kind::broadcast:
    case operation_kind::scatter:
      return is_root ? s.in.size() : 0;
    case operation_kind::gather:
      return is_root ? 0 : s.in.size();
    default:
      return s.in.size();
  }
}

void page_collective::put_given(std::byte* at) noexcept {
  const collective_shape& s = schedule_.shape();
  if (!is_by_parts_) {
    const std::span<const std::byte> slice = slice_of(s.in);
    // What this member takes out of its page itself stays in its caches.
    if (reduces(s.kind) && reads_ == reads::all) {
      copy_payload(at, slice.data(), slice.size());
    } else {
      to_others_.copy(at, slice.data(), slice.size());
    }
    return;
  }
  const std::size_t part = s.in.size() / static_cast<std::size_t>(core_.size);
  for (rank_t rank = 0; rank < core_.size; ++rank) {
    const std::span<const std::byte> slice =
        slice_of(s.in.subspan(static_cast<std::size_t>(rank) * part, part));
    // It does not take its own part from there.
    if (rank != core_.self) to_others_.copy(at, slice.data(), slice.size());
    at += slice.size();
  }
}

// Returns how many bytes of a member's payload belong to this round.
std::size_t page_collective::in_this_round(std::size_t payload) const noexcept {
  const auto in_slice = [this](std::size_t whole) {
    return std::min(whole - std::min(round_at_, whole), slice_);
  };
  if (!is_by_parts_) return in_slice(payload);
  const auto parts = static_cast<std::size_t>(core_.size);
  return in_slice(payload / parts) * parts;
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

// An entry, and the place of its number, are free once all others have entered something
// later than what stands there. A member that has left reads nothing any longer.
bool page_collective::has_room() {
  const std::uint64_t wanted = shm::page_group::room_for(number_);
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
  const std::size_t gives = payload_given();
  const std::size_t now = in_this_round(gives);
  MW_ASSERT(now <= shm::page_layout::place_bytes, "what is written fits its place");
  std::byte* const at = now <= shm::page_inline_bytes
                            ? group_.entry_for(number_).payload.data()
                            : pages_.own->place_of(number_);
  if (now > 0) put_given(at);
  given_ = {at, now};
  group_.publish(number_, schedule_.signature().word(), gives);
  is_published_ = true;
  const bool is_root = reads_ == reads::none && schedule_.shape().root == core_.self;
  group_.wake_sleepers(number_, is_root, [this](std::size_t rank) {
    links_.link_to(static_cast<rank_t>(rank))->wake_sleeper();
  });
  if (round_at_ > 0 || !is_contradicted()) copy_own();
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
    if (schedule_.signature().agrees_with(theirs)) {
      // Nothing is left to be taken. With many members on few CPUs each entry has left
      // the caches before a second look.
      if (schedule_.shape().kind == operation_kind::barrier && seen.bytes == 0) {
        taken_[static_cast<std::size_t>(rank)] = number_;
      }
      continue;
    }
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
      if (reads_ == reads::all) {
        copy_all(slice_of(s.in), slice_of(s.out_parts.of(s.out, core_.self)));
      }
      return;
    case operation_kind::scatter:
      if (s.root == core_.self) {
        copy_all(slice_of(s.in_parts.of(s.in, core_.self)), slice_of(s.out));
      }
      return;
    case operation_kind::all_to_all:
      return copy_all(slice_of(s.in_parts.of(s.in, core_.self)),
                      slice_of(s.out_parts.of(s.out, core_.self)));
    default:
      return;
  }
}

// Takes what has come of this round, by rank. Returns whether all is there; `did` tells
// whether anything was.
bool page_collective::take(bool& did) {
  if (reads_ == reads::none) return true;
  if (reads_ == reads::root) return take_from(schedule_.shape().root);
  const bool is_long = std::min(longest_ - round_at_, slice_) > shm::page_inline_bytes;
  while (next_ < core_.size) {
    if (!take_from(next_)) return false;
    did = true;
    ++next_;
    if (!is_long || next_ == core_.size) continue;
    core_.home.note_long_step();
    if (core_.home.is_turn_used_up()) return false;
  }
  return true;
}

bool page_collective::take_from(rank_t rank) {
  if (rank == core_.self) {
    if (reduces(schedule_.shape().kind)) take_payload(rank, given_);
    return true;
  }
  if (taken_[static_cast<std::size_t>(rank)] == number_) return true;
  std::span<const std::byte> payload;
  const looked found = look_at(rank, payload);
  if (found == looked::entered) take_payload(rank, payload);
  return found == looked::entered;
}

// Returns the part of a payload, which holds those of all, that goes into `out`.
std::span<const std::byte> page_collective::part_in(
    std::span<const std::byte> payload, std::span<std::byte> out) const noexcept {
  const collective_shape& s = schedule_.shape();
  if (s.is_variable) return s.in_parts.of(payload, core_.self);
  return payload.subspan(static_cast<std::size_t>(core_.self) * out.size(), out.size());
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
  // The whole is compared in each round: members that disagree may agree on a slice.
  const std::size_t expected = payload_from(rank);
  if (seen.bytes != expected) [[unlikely]] {
    fail(rank, cause::mismatch,
         fmt::format(": a message of {} bytes where {} were expected", seen.bytes,
                     expected),
         theirs);
    return looked::failed;
  }
  const std::size_t now = in_this_round(expected);
  MW_ASSERT(now <= shm::page_layout::place_bytes, "what is read lies in its place");
  payload = {now <= shm::page_inline_bytes ? group_.inline_payload(at, number_)
                                           : pages_.others[at]->place_of(number_),
             now};
  return looked::entered;
}

void page_collective::take_payload(rank_t rank, std::span<const std::byte> payload) {
  const collective_shape& s = schedule_.shape();
  switch (s.kind) {
    case operation_kind::broadcast:
      return copy_all(payload, slice_of(s.out));
    case operation_kind::scatter:
      return copy_all(part_in(payload, slice_of(s.out)), slice_of(s.out));
    case operation_kind::gather:
    case operation_kind::all_gather:
      return copy_all(payload, slice_of(s.out_parts.of(s.out, rank)));
    case operation_kind::all_to_all: {
      const std::span<std::byte> into = slice_of(s.out_parts.of(s.out, rank));
      return copy_all(part_in(payload, into), into);
    }
    case operation_kind::reduce_scatter:
      return combine(rank, part_in(payload, slice_of(s.out)));
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
    waits = shm::page_wait::for_all(shm::page_group::room_for(number_));
  }
  return group_.prepare_sleep(waits, [this] { return has_come(); });
}

void page_collective::cancel_sleep() noexcept { group_.cancel_sleep(); }

}  // namespace manyworlds::inline v0::detail::host
