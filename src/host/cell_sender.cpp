#include "host/cell_sender.hpp"

#include <algorithm>
#include <utility>

#include "host/host_backend.hpp"
#include "manyworlds/detail/assertion.hpp"

namespace manyworlds::inline v0::detail::host {

namespace {

// Slices of one turn: as much as a slice of the other transports.
constexpr int slices_at_once = 8;
/// Chunks that slices for a receiver that reads, too, leave free for other messages of
/// the link. Where these were half of them 1 MiB took 73 us, where a fourth 63.
constexpr unsigned chunks_beside_help = shm::chunk_states::chunks / 4;
constexpr unsigned chunks_to_help =
    chunks_beside_help + static_cast<unsigned>(cell_slice_limit / shm::chunk_size);
static_assert(chunks_to_help <= shm::chunk_states::chunks);
/// Offers kept of those that a link's worlds share, for messages that a receive waits
/// for and for collectives. Lanes that are not received on must not use up all.
constexpr std::uint32_t offers_in_reserve = shm::offer_table::offers / 4;
static_assert(offers_in_reserve > 0 && offers_in_reserve < shm::offer_table::offers);
static_assert(operation::largest_head + sizeof(remote_payload) <= shm::chunk_size,
              "an offer's head and place fit into one chunk");
static_assert(cell_slice_limit % shm::chunk_size == 0 &&
                  cell_slice_limit / shm::chunk_size <= shm::chunk_states::chunks,
              "a slice fills whole chunks");
static_assert(
    host_backend_options{}.lane_window * 8 <=
        shm::chunk_states::chunks * shm::chunk_size * 7,
    "a lane of large messages leaves other worlds an eighth of a link's chunks");

constexpr const char* corrupt_position = "a ring position beyond what was sent";
constexpr const char* corrupt_offer = "an offer's word that a receiver cannot set";

}  // namespace

cell_sender::cell_sender(core& shared, shm::shared_link& link, unsigned slot)
    : sender(shared),
      link_(link),
      slot_(slot),
      largest_unasked_(std::min({shared.options.eager_limit, cell_eager_limit,
                                 shared.options.unasked_in_memory})),
      ring_(link.outgoing(slot)),
      pools_(link) {}

void cell_sender::shut() noexcept {
  for_each_pending([this](pending_send& p) {
    if (p.eager) return;
    // Taken or withdrawn: in both cases what the peer reads no longer counts.
    (void)link_.offers_out().withdraw(p.ticket);
    link_.offers_out().finish(p.ticket);
  });
  give_back_reserved_chunk();
  pools_.forget_all();
  overflow_.clear();
  active_.clear();
  helped_.clear();
  taken_.clear();
  written_ = false;
  is_shut_ = true;
}

bool cell_sender::has_chunk() noexcept {
  if (reserved_) return true;
  using outcome = shm::allocated_chunk::outcome;
  for (;;) {
    const shm::allocated_chunk got = link_.chunks_out().allocate();
    if (got.result == outcome::allocated) {
      MW_ASSERT(got.index < shm::chunk_states::chunks, "a chunk lies in its slab");
      link_.owners_out().note_allocated(got.index, slot_);
      reserved_ = got.index;
      return true;
    }
    if (got.result == outcome::corrupt) {
      violation_ = "chunk states that a reader cannot set";
      return false;
    }
    if (link_.reclaim_chunks() || link_.add_chunks() || link_.collect_reserved_chunks())
      continue;
    // The peer tells of chunks that come back. No notice comes of memory that becomes
    // available, nor of chunks of worlds that are over.
    core_.backend.tidy_soon();
    return false;
  }
}

bool cell_sender::is_full() noexcept {
  if (violation_ || is_shut_) return true;
  switch (ring_.reserve(1)) {
    case shm::room::enough:
      break;
    case shm::room::corrupt:
      violation_ = corrupt_position;
      [[fallthrough]];
    case shm::room::full:
      return true;
  }
  return !has_chunk();
}

bool cell_sender::has_offer_room(bool asked) noexcept {
  const std::uint32_t limit = shm::offer_table::offers - (asked ? 0 : offers_in_reserve);
  if (link_.offers_out().in_use() < limit) return true;
  // This world is not told when another one ends an offer.
  core_.backend.tidy_soon();
  return false;
}

// Do not request a notice while this side still looks in each turn: it would cost the
// peer a notice for each chunk whenever the peer is the slower side.
bool cell_sender::could_go_on_or_is_told() noexcept {
  if (!is_starving() || violation_ || is_shut_) return false;
  // The ring first: chunks are looked for everywhere only if the ring has room.
  if (ring_.reserve(1) == shm::room::full && ring_.must_wait_for_room(1)) return false;
  if (!is_full()) return true;
  // A chunk that has just come back is looked at once more, even if this world does not
  // need it: the flag that it took down may have been another world's.
  return !violation_ && !reserved_ && !link_.chunks_out().must_wait_for_chunk();
}

void cell_sender::publish(const shm::cell_content& c) noexcept {
  MW_ASSERT(!is_shut_, "a sender that was shut leaves the shared memory alone");
  MW_ASSERT(ring_.is_reserved(1), "a cell is written where room was found for it");
  ring_.fill(0, c);
  ring_.publish(1);
  written_ = true;
}

std::byte* cell_sender::take_chunk(shm::cell_content& c) noexcept {
  MW_ASSERT(reserved_.has_value(),
            "a message that was found room for has a chunk reserved");
  const unsigned index = *std::exchange(reserved_, std::nullopt);
  set_chunk(c, index);
  return link_.chunk_out(index);
}

shm::allocated_chunk cell_sender::take_run(std::size_t bytes) noexcept {
  using outcome = shm::allocated_chunk::outcome;
  auto count = static_cast<unsigned>(shm::chunks_of(bytes));
  while (count > 1) {
    const shm::allocated_chunk got = link_.chunks_out().allocate(count);
    if (got.result == outcome::allocated) {
      MW_ASSERT(got.count == count && got.index + count <= shm::chunk_states::chunks,
                "a run of chunks lies in its slab");
      link_.owners_out().note_allocated(got.index, slot_);
      return got;
    }
    // A smaller slice is better than none.
    if (got.result == outcome::corrupt || !link_.add_chunks()) --count;
  }
  MW_ASSERT(reserved_.has_value(),
            "a slice that was found room for has a chunk reserved");
  return {outcome::allocated, *std::exchange(reserved_, std::nullopt), 1};
}

std::optional<unsigned> cell_sender::exact_run(std::size_t bytes) noexcept {
  using outcome = shm::allocated_chunk::outcome;
  const auto count = static_cast<unsigned>(shm::chunks_of(bytes));
  for (;;) {
    const shm::allocated_chunk got = link_.chunks_out().allocate(count);
    if (got.result == outcome::allocated) {
      link_.owners_out().note_allocated(got.index, slot_);
      return got.index;
    }
    if (got.result == outcome::corrupt || !link_.add_chunks()) return std::nullopt;
  }
}

void cell_sender::control(const frame& f) {
  if (is_shut_) return;
  if (overflow_.empty() && !violation_ && ring_.reserve(1) == shm::room::enough) {
    return publish(cell_of(f));
  }
  overflow_.push_back(f);
}

void cell_sender::put(const frame& f, const operation& op, pending_send* p) {
  shm::cell_content c = cell_of(f);
  f.kind == frame_kind::eager ? put_eager(c, op, p) : put_offer(c, op, *p);
  publish(c);
  // A chunk that it has not used is free for all worlds of the link: where 48 of them had
  // sent once 236 KiB took twice as long in another, since its sender could not help.
  give_back_reserved_chunk();
}

bool cell_sender::try_send(const operation& op) {
  const std::size_t payload = op.source.total_bytes();
  const std::size_t bytes = op.head_bytes + payload;
  const std::size_t cost = message_cost + bytes;
  if (op.delivered || op.on_device || bytes > largest_unasked_ || !overflow_.empty()) {
    return false;
  }
  outgoing_lane* const l = open_lane(op.on.number(), cost);
  if (!l || violation_ || is_shut_ || ring_.reserve(1) != shm::room::enough) return false;
  if (bytes > shm::chunk_size) {
    run_ = exact_run(bytes);
    if (!run_) return false;
  } else if (bytes > inline_bytes && !has_chunk()) {
    return false;
  }

  shm::cell_content c;
  const bool is_empty_payload = op.gives_payload && payload == 0;
  put_eager_header(
      c, {op.source.type(), op.head_bytes, is_empty_payload ? eager_empty_payload : 0,
          l->number, next_id(), op.user.value(), payload});
  put_eager(c, op, nullptr);
  publish(c);
  note_accepted(*l, cost, bytes);
  return true;
}

void cell_sender::put_eager(shm::cell_content& c, const operation& op, pending_send* p) {
  const std::size_t payload = op.source.total_bytes();
  const bool fits = op.head_bytes + payload <= inline_bytes;
  MW_ASSERT(run_ || op.head_bytes + payload <= cell_content_limit,
            "what is sent unasked fits into the chunks that were found for it");
  MW_ASSERT(op.head_bytes == 0 || op.head, "a head that has bytes lies somewhere");
  std::byte* into = inline_content(c);
  if (const auto run = std::exchange(run_, std::nullopt)) {
    set_chunk(c, *run);
    into = link_.chunk_out(*run);
    core_.home.note_long_step();
  } else if (!fits) {
    into = take_chunk(c);
  }
  if (op.head_bytes > 0) std::memcpy(into, op.head, op.head_bytes);
  into += op.head_bytes;
  const_view_cursor cursor;
  if (op.source.size() == 1) {
    // Most messages need no cursor.
    if (payload > 0) to_peer_.copy(into, op.source[0].data(), payload);
  } else {
    cursor = const_view_cursor(op.source);
    copy_out(cursor, payload, into);
  }
  if (p) p->cursor = cursor;
}

void cell_sender::copy_out(const_view_cursor& cursor, std::size_t bytes,
                           std::byte* into) {
  while (bytes > 0) {
    const auto piece = cursor.front(bytes);
    to_peer_.copy(into, piece.data(), piece.size());
    cursor.advance(piece.size());
    into += piece.size();
    bytes -= piece.size();
  }
}

void cell_sender::put_offer(shm::cell_content& c, const operation& op, pending_send& p) {
  p.cursor = const_view_cursor(op.source);
  const auto first = p.cursor.front(p.cursor.remaining());
  const bool in_one_place = first.size() == p.cursor.remaining();
  remote_payload where;
  pools_.describe(op.source, p.id, where);
  const std::optional<shm::offer_ticket> ticket = link_.offers_out().offer();
  MW_ASSERT(ticket.has_value(), "a payload is offered where there is room for offers");
  p.ticket = *ticket;
  MW_ASSERT(shm::offer_receiver::valid(p.ticket), "the peer accepts what it is offered");
  where.ticket = p.ticket;
  where.views = in_one_place ? 0 : op.source.size();
  where.address = reinterpret_cast<std::uintptr_t>(
      in_one_place ? static_cast<const void*>(first.data()) : &op.source[0]);
  if (in_one_place && where.pool == 0 && op.head_bytes == 0) {
    const auto brief = payload_in_one_place::of(where);
    MW_ASSERT(brief.whole().ticket.index == where.ticket.index &&
                  brief.whole().ticket.generation == where.ticket.generation,
              "the short form of an offer names the same offer");
    std::memcpy(inline_content(c), &brief, sizeof brief);
    return;
  }
  std::byte* into = take_chunk(c);
  if (op.head_bytes > 0) std::memcpy(into, op.head, op.head_bytes);
  std::memcpy(into + op.head_bytes, &where, sizeof where);
}

bool cell_sender::revoke(pending_send& p) noexcept {
  MW_ASSERT(!p.eager, "only an offer can be revoked");
  if (is_shut_) return true;
  using status = shm::offer_sender::status;
  switch (link_.offers_out().withdraw(p.ticket)) {
    case status::taken:
      taken_.push_back(&p);
      return false;
    case status::corrupt:
      violation_ = corrupt_offer;
      [[fallthrough]];
    default:
      return true;
  }
}

const char* cell_sender::check_taken(const pending_send& p) const noexcept {
  if (p.eager || link_.offers_out().poll(p.ticket) == shm::offer_sender::status::taken) {
    return nullptr;
  }
  return "a message taken that it did not take";
}

void cell_sender::forget(pending_send& p) noexcept {
  std::erase(taken_, &p);
  if (p.eager || is_shut_) return;
  pools_.forget(p.id);
  if (link_.offers_out().poll(p.ticket) == shm::offer_sender::status::taken) {
    // Slices that have helped were counted.
    const std::size_t sent =
        p.at == phase::pulled ? std::size_t{p.op->bytes_moved} : std::size_t{0};
    p.op->bytes_moved = whole_bytes(*p.op);
    core_.counters.bytes_sent += p.op->bytes_moved - sent;
  }
  link_.offers_out().finish(p.ticket);
  look_for_offer_room();
}

void cell_sender::finish_taken() {
  while (!taken_.empty()) finish(*taken_.back(), ending::taken);
}

void cell_sender::send_slice(pending_send& p, const shm::allocated_chunk& run) {
  MW_ASSERT(!p.eager && p.at == phase::pulled, "slices are sent of what is pulled");
  MW_ASSERT(!p.cursor.at_end(), "a slice has bytes");
  const bool has_run = run.result == shm::allocated_chunk::outcome::allocated;
  MW_ASSERT(has_run || p.cursor.remaining() <= inline_bytes,
            "a slice has chunks unless its cell has room for it");
  frame data;
  data.kind = frame_kind::data;
  data.id = p.id;
  data.generation = p.generation;
  data.word = p.op->source.total_bytes() - p.cursor.remaining();
  std::size_t bytes = std::min(p.cursor.remaining(), cell_slice_limit);
  if (has_run) bytes = std::min(bytes, run.count * shm::chunk_size);
  data.bytes = bytes;
  shm::cell_content c = cell_of(data);
  if (has_run) set_chunk(c, run.index);
  copy_out(p.cursor, bytes, has_run ? link_.chunk_out(run.index) : inline_content(c));
  publish(c);
  core_.counters.bytes_sent += data.bytes;
  p.op->bytes_moved += data.bytes;
  last_progress_ = core_.home.now();
  if (!p.cursor.at_end()) return (p.is_read_too ? helped_ : active_).push_back(&p);
  // The receiver ends one that it reads, too.
  if (p.is_read_too) return;
  p.at = phase::sent;
  frame complete;
  complete.kind = frame_kind::complete;
  complete.id = p.id;
  complete.generation = p.generation;
  control(complete);
}

bool cell_sender::progress(bool helps) {
  while (!overflow_.empty() && !is_full()) {
    publish(cell_of(overflow_.front()));
    overflow_.pop_front();
  }
  if (may_send() && overflow_.empty()) send_all_waiting();
  int slices = slices_at_once;
  for (; slices > 0 && !active_.empty(); --slices) {
    if (!overflow_.empty() || is_full()) return false;
    pending_send& p = *active_.front();
    active_.pop_front();
    const std::size_t bytes = std::min(p.cursor.remaining(), cell_slice_limit);
    const bool fits = bytes <= inline_bytes;
    send_slice(p, fits ? shm::allocated_chunk{} : take_run(bytes));
  }
  if (helps) help(slices);
  return !active_.empty() && !is_full();
}

// Without a word to other worlds of the link, and without a timer: what it needs may be
// missing for as long as the receiver rests.
bool cell_sender::has_room_to_help() noexcept {
  if (violation_ || is_shut_ || !overflow_.empty()) return false;
  const shm::room has = ring_.reserve(1);
  if (has == shm::room::corrupt) violation_ = corrupt_position;
  return has == shm::room::enough &&
         (link_.chunks_out().has_free(chunks_to_help) || link_.may_add_chunks());
}

shm::allocated_chunk cell_sender::spare_run(std::size_t bytes) noexcept {
  using outcome = shm::allocated_chunk::outcome;
  while (!link_.chunks_out().has_free(chunks_to_help)) {
    if (!link_.may_add_chunks() || !link_.add_chunks()) return {};
  }
  shm::allocated_chunk got;
  // Fewer of them stand together somewhere.
  for (auto count = static_cast<unsigned>(shm::chunks_of(bytes));
       count > 0 && got.result == outcome::none_free; --count) {
    got = link_.chunks_out().allocate(count);
  }
  if (got.result == outcome::corrupt)
    violation_ = "chunk states that a reader cannot set";
  if (got.result == outcome::allocated)
    link_.owners_out().note_allocated(got.index, slot_);
  return got;
}

// What the receiver reads meanwhile is copied for nothing: no more than those chunks.
void cell_sender::help(int slices) {
  for (; slices > 0 && can_help(); --slices) {
    pending_send& p = *helped_.front();
    MW_ASSERT(p.is_read_too && p.at == phase::pulled, "help is given where it was asked");
    // One that is taken says so in its own way.
    using status = shm::offer_sender::status;
    if (const status at = link_.offers_out().poll(p.ticket); at != status::open) {
      if (at == status::corrupt) violation_ = corrupt_offer;
      helped_.pop_front();
      continue;
    }
    const std::size_t bytes = std::min(p.cursor.remaining(), cell_slice_limit);
    shm::allocated_chunk run;
    if (bytes > inline_bytes) {
      run = spare_run(bytes);
      if (run.result != shm::allocated_chunk::outcome::allocated) return;
    }
    helped_.pop_front();
    send_slice(p, run);
  }
}

}  // namespace manyworlds::inline v0::detail::host
