#include "cell_receiver.hpp"

#include <algorithm>
#include <cerrno>
#include <string>
#include <utility>

namespace manyworlds::inline v0::host {

namespace {

// Of one turn (law 9): half a ring, so that the writer has room again meanwhile.
constexpr int cells_at_once = 32;
constexpr std::size_t pieces_at_once = 64;

}  // namespace

cell_receiver::cell_receiver(core& shared, rank_t peer, sender& answers,
                             frame_handler& others, shm::shared_link& link, unsigned slot)
    : receiver(
          shared, peer, answers, others,
          {std::min(shared.options.eager_limit, cell_content_limit), cell_content_limit}),
      link_(link),
      slot_(slot),
      ring_(link.incoming(slot)) {}

const char* cell_receiver::take(bool& any) {
  for (int i = 0; i < cells_at_once && ring_.ready(); ++i) {
    any = true;
    shm::cell_content c = ring_.front();
    if (ring_.pop()) link_.notify(slot_);
    if (const char* wrong = handle_cell(c)) return wrong;
    // An operation that ended may have ended the world.
    if (core_.stopping) break;
  }
  return nullptr;
}

const char* cell_receiver::handle_cell(shm::cell_content& c) {
  frame f;
  if (const char* wrong = decode(header_of(c), limits_, f)) return wrong;
  std::size_t size = content_bytes(f);
  if (f.kind == frame_kind::offer) size += sizeof(remote_payload);
  const std::optional<unsigned> chunk = chunk_of(c);
  if (!chunk) {
    if (size > inline_bytes) return "a frame without its content";
    return handle_content(f, {inline_content(c), size});
  }
  if (size <= inline_bytes || !link_.chunks_in().valid(*chunk)) {
    return "a frame with a chunk that it cannot have";
  }
  const char* wrong = handle_content(f, {link_.chunk_in(*chunk), size});
  if (link_.chunks_in().free(*chunk)) link_.notify(slot_);
  return wrong;
}

const char* cell_receiver::handle_content(const frame& f,
                                          std::span<const std::byte> content) {
  core_.counters.bytes_received += content.size();
  if (f.kind == frame_kind::data) {
    inbound_message* m = nullptr;
    if (const char* wrong = on_data(f, m)) return wrong;
    if (!m) return nullptr;
    for (std::size_t copied = 0; copied < content.size();) {
      const auto place = m->target.front(content.size() - copied);
      std::memcpy(place.data(), content.data() + copied, place.size());
      m->target.advance(place.size());
      copied += place.size();
    }
    note_progress(*m, content.size());
    return nullptr;
  }
  if (f.kind == frame_kind::offer) {
    std::memcpy(&described_, content.data() + f.head_bytes, sizeof described_);
    content = content.first(f.head_bytes);
  }
  const char* wrong = handle(f, content);
  if (f.kind == frame_kind::offer && f.generation == offer_may_be_kept) {
    untaken_.push_back(f.id);
  }
  return wrong;
}

void cell_receiver::collect_untaken() {
  for (const std::uint64_t id : std::exchange(untaken_, {})) {
    inbound_message* m = find(id);
    if (m && m->offered && !m->is_being_brought()) collect(*m);
  }
}

const char* cell_receiver::describe(const frame& f, inbound_message& m) {
  if (f.kind != frame_kind::offer) return nullptr;
  if (!shm::offer_receiver::valid(described_.ticket))
    return "an offer that cannot be one";
  m.remote = described_;
  return nullptr;
}

void cell_receiver::begin(inbound_message& m) {
  if (!link_.memory()) return receiver::begin(m);
  readings_.push_back({&m, remote_cursor(m.remote, m.payload_bytes)});
}

void cell_receiver::stop(inbound_message& m) {
  const bool is_read = std::any_of(readings_.begin(), readings_.end(),
                                   [&](const reading& r) { return r.message == &m; });
  if (!is_read) receiver::stop(m);
}

void cell_receiver::let_go(inbound_message& m) noexcept {
  std::erase_if(readings_, [&](const reading& r) { return r.message == &m; });
}

const char* cell_receiver::read_slice() {
  reading& r = readings_.front();
  inbound_message& m = *r.message;
  std::array<iovec, pieces_at_once> from;
  // Another world of this link may have found that out.
  if (!link_.memory()) return cannot_read(m, link_.memory_refusal());
  int error = 0;
  const std::size_t pieces =
      r.source.fill(*link_.memory(), from, core_.options.slice, error);
  if (pieces == 0) {
    return error == 0 ? "an offer of less than it says" : cannot_read(m, error);
  }
  std::size_t bytes = 0;
  for (std::size_t i = 0; i < pieces; ++i) bytes += from[i].iov_len;
  std::array<iovec, pieces_at_once> into;
  const std::size_t places = m.target.fill(into, bytes);
  const ssize_t got =
      link_.memory()->read(std::span(into).first(places), std::span(from).first(pieces));
  if (got <= 0) return cannot_read(m, got < 0 ? errno : EFAULT);
  const auto count = static_cast<std::size_t>(got);
  m.target.advance(count);
  r.source.advance(count);
  note_progress(m, count);
  core_.counters.bytes_received += count;
  if (r.source.remaining() == 0) return finish_reading(m);
  if (!link_.offers_in().still_offered(m.remote.ticket)) {
    // A sender that gave it up says so in its turn; one whose world broke says that.
    let_go(m);
  } else if (readings_.size() > 1) {
    readings_.push_back(r);
    readings_.pop_front();
  }
  return nullptr;
}

const char* cell_receiver::finish_reading(inbound_message& m) {
  let_go(m);
  // Given up meanwhile: what was read may be anything. A peer that has not died since was
  // the owner of its pid all the time.
  if (link_.offers_in().take(m.remote.ticket) && !link_.peer_has_died()) {
    complete(m);
  }
  return nullptr;
}

const char* cell_receiver::cannot_read(inbound_message& m, int error) {
  switch (error) {
    case EPERM:
    case EACCES:
    case ENOSYS:
      // Our rights have changed since it was probed.
      if (link_.stop_reading(error)) {
        core_.events.remark("the memory of rank " + std::to_string(peer_) + " " +
                            shm::unreadable_text(error));
      }
      let_go(m);
      receiver::begin(m);
      if (m.taker) m.taker->bytes_moved = m.taker->bytes_moved - m.received;
      m.target = m.payload_place();
      m.received = 0;
      return nullptr;
    case ESRCH:
      // Its death is told by its link.
      let_go(m);
      return nullptr;
    default:
      // A sender that gave up may have freed the memory since.
      if (!link_.offers_in().still_offered(m.remote.ticket)) {
        let_go(m);
        return nullptr;
      }
      return "an offer of memory that is not there";
  }
}

}  // namespace manyworlds::inline v0::host
