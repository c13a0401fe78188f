// Whatever a peer writes into the tables of the memory that it shares with us, whenever:
// the segment's header, wake-ups, beats, chunk states, offers, consumed positions. What
// we do with them stays within our own bounds.
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <optional>
#include <vector>

#include "input.hpp"
#include "io/engines.hpp"
#include "link/local_socket.hpp"
#include "link/shared_link.hpp"

using namespace manyworlds;
using fuzzing::input;
using fuzzing::must;

namespace {

struct quiet_slot final : shm::slot_listener {
  bool poll() noexcept override { return false; }
  [[nodiscard]] bool has_something() noexcept override { return false; }
  void wake_ups_ended() noexcept override {}
};

/// Our side of a link. The input is its other side.
class victim {
 public:
  explicit victim(const shm::shm_segment& peers)
      : home_(make_epoll_engine(), {.spin = duration::zero()}) {
    std::string why_not;
    shm::shared_parts parts;
    parts.segment = shm::shm_segment::attach(::dup(peers.descriptor()), why_not);
    if (!parts.segment) return;
    int ends[2];
    must(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends) == 0);
    parts.wake_socket = {home_.sockets(), static_cast<socket_handle>(ends[0])};
    peers_end_ = unique_descriptor(ends[1]);
    shm::shm_segment& segment = *parts.segment;
    const auto line = [&](int side) -> shm::beat_line& {
      return *reinterpret_cast<shm::beat_line*>(segment.at(shm::offset::beat(side)));
    };
    beats_.emplace(line(1), line(0));
    link_ = std::make_shared<shm::shared_link>(home_, home_.sockets(), std::move(parts));
    writer_.emplace(link_->outgoing(slot));
    link_->attach(slot, events_);
  }
  ~victim() {
    if (link_) link_->detach(slot);
    for (int turns = 0; turns < 8; ++turns) home_.turn();
  }
  explicit operator bool() const { return link_ != nullptr; }

  void act(unsigned what, input& in) {
    switch (what % 9) {
      case 0:
        home_.turn();
        break;
      case 1: {
        const shm::allocated_chunk got = link_->chunks_out().allocate();
        if (got.result != shm::allocated_chunk::outcome::allocated) break;
        must(got.index < shm::chunk_states::chunks);
        link_->owners_out().note_allocated(got.index, slot);
        break;
      }
      case 2: {
        const auto index = in.take<std::uint64_t>();
        if (link_->chunks_in().valid(index)) {
          must(index < shm::chunk_states::chunks);
          link_->chunks_in().free(index);
          if (link_->chunks_in().writer_waits()) link_->notify(slot);
        }
        break;
      }
      case 3:
        if (const auto ticket = link_->offers_out().offer()) offers_.push_back(*ticket);
        must(link_->offers_out().in_use() == offers_.size());
        break;
      case 4: {
        if (offers_.empty()) break;
        static_cast<void>(link_->offers_out().poll(offers_.back()));
        static_cast<void>(link_->offers_out().withdraw(offers_.back()));
        link_->offers_out().finish(offers_.back());
        offers_.pop_back();
        break;
      }
      case 5: {
        shm::offer_ticket ticket;
        ticket.index = in.take<std::uint32_t>();
        ticket.generation = in.take<std::uint64_t>();
        if (!shm::offer_receiver::valid(ticket)) break;
        static_cast<void>(link_->offers_in().still_offered(ticket));
        // Once only, whatever the peer says.
        if (link_->offers_in().take(ticket)) must(!link_->offers_in().take(ticket));
        break;
      }
      case 6:
        beats_->beat({in.take<std::uint8_t>(), {}});
        static_cast<void>(beats_->poll());
        must(!beats_->poll());
        break;
      case 7:
        // It never overtakes the reader, as far as that may say where it is.
        if (writer_->reserve(1) != shm::room::enough) break;
        writer_->fill(0, {});
        writer_->publish(1);
        link_->notify(slot);
        break;
      default:
        link_->reclaim_chunks();
        static_cast<void>(link_->peer_has_died());
        static_cast<void>(link_->add_chunks());
    }
  }

 private:
  static constexpr unsigned slot = 3;

  reactor home_;
  quiet_slot events_;
  unique_descriptor peers_end_;
  std::optional<shm::beat_exchange> beats_;
  std::shared_ptr<shm::shared_link> link_;
  std::optional<shm::ring_writer> writer_;
  std::vector<shm::offer_ticket> offers_;
};

}  // namespace

// First the header, if the first byte says so; then steps: something of ours, or some
// bytes somewhere before the rings, or in one of the slot's.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static std::string why_not;
  static const auto segment = shm::shm_segment::make(why_not);
  must(segment != nullptr);
  static const bool reserved =
      segment->reserve(0, shm::offset::ring(8, 0)) == 0 &&
      segment->reserve(shm::offset::chunks_begin, shm::chunk_size * 8) == 0;
  must(reserved);
  std::memset(segment->at(0), 0, shm::offset::ring(8, 0));
  shm::segment_header header;
  header.bytes = shm::segment_bytes;
  std::memcpy(segment->at(0), &header, sizeof header);

  input in(data, size);
  if (in.take<std::uint8_t>() % 8 == 0) {
    const std::size_t at = in.take<std::uint8_t>() % sizeof header;
    in.take_into({segment->at(at), 4});
    std::memcpy(&header, segment->at(0), sizeof header);
    const bool is_right =
        header.magic == shm::segment_magic && header.version == shm::segment_version &&
        header.cells == shm::cell_ring::capacity && header.bytes == shm::segment_bytes;
    const victim v(*segment);
    must(static_cast<bool>(v) == is_right);
    return 0;
  }
  victim v(*segment);
  must(static_cast<bool>(v));
  while (!in.ended()) {
    const unsigned step = in.take<std::uint8_t>();
    if (step < 128) {
      v.act(step, in);
    } else {
      const std::size_t where = in.take<std::uint16_t>() % shm::offset::ring(8, 0);
      const std::size_t room = shm::offset::ring(8, 0) - where;
      in.take_into({segment->at(where), std::min<std::size_t>(step % 32, room)});
    }
  }
  return 0;
}
