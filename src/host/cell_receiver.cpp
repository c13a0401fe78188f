#include "host/cell_receiver.hpp"

#include <algorithm>
#include <cstring>
#include <utility>

#include "memory/payload_copy.hpp"

namespace manyworlds::inline v0::detail::host {

namespace {

// Limits of one turn (law 9): half a ring of cells, so that the writer has room again
// meanwhile, and as much content as a slice of the other transports.
constexpr int cells_at_once = 32;
constexpr std::size_t content_at_once = std::size_t{256} * 1024;
static_assert(cells_at_once * 2 == shm::cell_ring::capacity, "half a ring");
static_assert(cell_slice_limit <= content_at_once, "a turn has room for a slice");

}  // namespace

cell_receiver::cell_receiver(core& shared, rank_t peer, sender& answers, channel& owner,
                             shm::shared_link& link, unsigned slot)
    : receiver(shared, peer, answers, owner,
               {std::min(shared.options.eager_limit, cell_eager_limit), cell_slice_limit,
                true}),
      link_(link),
      slot_(slot),
      ring_(link.incoming(slot)),
      reader_(shared, *this, peer, link, slot) {}

const char* cell_receiver::take(bool& any) {
  const std::uint64_t enough = core_.counters.bytes_received + content_at_once;
  const char* wrong = nullptr;
  // Older work comes first (law 5).
  bool goes_straight_on = core_.home.has_nothing_ready();
  for (int i = 0; i < cells_at_once && ring_.ready() && !wrong; ++i) {
    any = true;
    shm::cell_content c = ring_.front();
    if (ring_.pop()) link_.notify(slot_);
    if (pass_on(c)) {
      if (goes_straight_on) {
        // The task may go on for long: a writer that is seen to wait is told before.
        if (has_freed_ && link_.chunks_in().seems_awaited()) tell_of_freed();
        goes_straight_on = core_.home.run_straight_on();
      }
    } else {
      wrong = handle_cell(c);
    }
    // The end of an operation may have ended the world, and a task that went straight on
    // may have been refused memory.
    if (core_.stopping || is_cut_short_) break;
    if (core_.counters.bytes_received >= enough) break;
  }
  // This is done also for a world that is over: other worlds of its link use the same
  // chunks.
  if (has_freed_) tell_of_freed();
  return wrong;
}

void cell_receiver::free_chunks(unsigned first) noexcept {
  link_.chunks_in().free(first);
  has_freed_ = true;
}

void cell_receiver::tell_of_freed() noexcept {
  has_freed_ = false;
  if (link_.chunks_in().writer_waits()) link_.notify(slot_);
}

bool cell_receiver::pass_on(shm::cell_content& c) {
  eager_header h;
  if (!get_plain_header(c, h) || !is_next(h.id)) return false;
  if (h.bytes > limits_.eager_bytes || h.head_bytes > operation::largest_head)
    return false;
  const std::size_t size = h.head_bytes + static_cast<std::size_t>(h.bytes);
  inbound_lane* const l = core_.matcher->awaited_lane(peer_, h.on);
  if (!l || size > limits_.eager_bytes || (h.bytes & (size_of(h.type) - 1)) != 0)
    return false;
  operation& op = *l->waiting.front();
  const bool is_plain = op.kind == operation_kind::receive && !op.on_device &&
                        op.head_bytes == 0 && op.target.size() == 1 &&
                        op.target.total_bytes() == size && op.target.type() == h.type;
  const std::size_t cost = message_cost + size;
  if (!is_plain || !is_within_windows(*l, cost)) return false;
  const std::optional<unsigned> chunk = chunk_of(c);
  const bool is_there =
      chunk ? size > inline_bytes && link_.chunks_in().valid(*chunk, shm::chunks_of(size))
            : size <= inline_bytes;
  if (!is_there) return false;

  l->waiting.remove(op);
  if (size > 0) {
    copy_payload(op.target[0].data(), chunk ? link_.chunk_in(*chunk) : inline_content(c),
                 size);
  }
  if (chunk) {
    free_chunks(*chunk);
    core_.home.note_long_step();
  }
  op.info.source = peer_;
  op.info.on = lane(h.on);
  op.info.user = user_word(h.word);
  op.info.type = h.type;
  op.info.bytes = static_cast<std::size_t>(h.bytes);
  op.info.count = count_of(op.info.bytes, h.type);
  op.info.head_bytes = h.head_bytes;
  op.info.has_payload = h.bytes > 0 || h.head_bytes == 0;
  op.info.on_device = false;
  op.bytes_moved = size;
  core_.counters.bytes_received += size;
  note_passed_on(*l, cost, size);
  op.end(operation_end::done);
  return true;
}

const char* cell_receiver::handle_cell(shm::cell_content& c) {
  frame f;
  if (const char* wrong = decode(header_of(c), limits_, f)) return wrong;
  std::size_t size = content_bytes(f);
  const std::optional<unsigned> chunk = chunk_of(c);
  if (f.kind == frame_kind::offer) {
    size += chunk ? sizeof(remote_payload) : sizeof(payload_in_one_place);
  }
  if (!chunk) {
    if (size > inline_bytes) return "a frame without its content";
    return handle_content(f, {inline_content(c), size});
  }
  if (size <= inline_bytes || !link_.chunks_in().valid(*chunk, shm::chunks_of(size))) {
    return "a frame with chunks that it cannot have";
  }
  core_.home.note_long_step();
  const char* wrong = handle_content(f, {link_.chunk_in(*chunk), size});
  free_chunks(*chunk);
  return wrong;
}

const char* cell_receiver::handle_content(const frame& f,
                                          std::span<const std::byte> content) {
  if (f.kind == frame_kind::data) {
    inbound_message* m = nullptr;
    if (const char* wrong = on_data(f, m)) return wrong;
    if (!m) return nullptr;
    // What was read from the end meanwhile is there already.
    const std::size_t bytes = std::min(content.size(), m->payload_bytes - m->received);
    core_.counters.bytes_received += bytes;
    copy_part(content.data(), bytes, m->target, m->payload_bytes);
    note_progress(*m, bytes);
    if (m->is_read_too) reader_.note_slice(*m);
    return nullptr;
  }
  // What describes an offer is no part of the message.
  core_.counters.bytes_received +=
      f.kind == frame_kind::offer ? f.head_bytes : content.size();
  if (f.kind == frame_kind::offer) {
    remote_payload& where = arriving_.remote;
    if (content.size() == sizeof(payload_in_one_place)) {
      payload_in_one_place brief;
      std::memcpy(&brief, content.data(), sizeof brief);
      where = brief.whole();
    } else {
      std::memcpy(&where, content.data() + f.head_bytes, sizeof where);
    }
    if (!shm::offer_receiver::valid(where.ticket)) return "an offer that cannot be one";
    content = content.first(f.head_bytes);
  }
  const char* wrong = handle(f, content);
  if (f.kind == frame_kind::offer && f.generation == offer_may_be_kept) {
    untaken_.push_back(f.id);
  }
  return wrong;
}

void cell_receiver::begin(inbound_message& m) {
  if (!reader_.begin(m)) return ask(m);
  if (reader_.wants_help(m)) ask(m, pull_reads_too);
}

void cell_receiver::note_read(inbound_message& m, std::size_t bytes) noexcept {
  note_progress(m, bytes);
  core_.counters.bytes_received += bytes;
}

void cell_receiver::ask_for(inbound_message& m) {
  // What it was asked for before comes another way.
  stop(m);
  ask(m);
  if (m.taker) m.taker->bytes_moved = m.taker->bytes_moved - m.received;
  m.target = m.payload_place();
  m.received = 0;
}

void cell_receiver::collect_untaken() {
  for (const std::uint64_t id : std::exchange(untaken_, {})) {
    inbound_message* m = find(id);
    if (m && m->offered && !m->is_being_brought()) collect(*m);
  }
}

}  // namespace manyworlds::inline v0::detail::host
