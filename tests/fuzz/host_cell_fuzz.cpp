// Whatever a peer writes into the memory that it shares with us, whenever, a member of
// its world reads it without touching what is not its own, and each of its operations
// ends once at most.
#include <sys/socket.h>
#include <unistd.h>

#include <cstring>
#include <memory>
#include <vector>

#include "host/cell_frame.hpp"
#include "io/engines.hpp"
#include "link/local_socket.hpp"
#include "link/shared_link.hpp"
#include "member.hpp"

using namespace manyworlds;

namespace {

constexpr unsigned slot = 3;

shm::shared_parts parts_of_side_1(shm::shm_segment& made_by_peer,
                                  manyworlds::socket wake_socket) {
  std::string why_not;
  shm::shared_parts parts;
  parts.segment = shm::shm_segment::attach(::dup(made_by_peer.descriptor()), why_not);
  if (!parts.segment) std::abort();
  parts.wake_socket = std::move(wake_socket);
  // The fuzzer's own memory stands for the peer's: reading it does no harm.
  shm::memory_probe probe;
  probe.address = reinterpret_cast<std::uintptr_t>(probe.content.data());
  parts.memory = shm::remote_memory::of(::getpid(), probe, parts.memory_refusal);
  return parts;
}

/// Says in its cell or its chunk where an offered payload lies: in the fuzzer's own
/// memory, or wherever the input says.
void describe_offer(fuzzing::input& in, shm::shm_segment& segment,
                    shm::cell_content& cell) {
  static std::vector<std::byte> payload(8'000);
  const unsigned how = in.take<std::uint8_t>();
  host::remote_payload where;
  where.ticket = {how % 16, 1 + how / 128};
  where.address = reinterpret_cast<std::uintptr_t>(payload.data());
  if (how / 16 % 8 == 1) where.address = in.take<std::uint64_t>();
  if (how / 16 % 8 == 2) where.views = in.take<std::uint8_t>();
  if (how / 16 % 8 == 3) where.pool = in.take<std::uint64_t>();
  if (cell.head == 0) {
    const auto brief = host::payload_in_one_place::of(where);
    std::memcpy(host::inline_content(cell), &brief, sizeof brief);
  } else {
    std::memcpy(segment.at(shm::offset::chunk(0, cell.head - 1)), &where, sizeof where);
  }
  const std::uint64_t word = shm::offer_word(1, shm::offer_state::offered);
  std::memcpy(segment.at(shm::offset::offers(0)) + how % 16 * sizeof word, &word,
              sizeof word);
}

/// A step of the input: what it is, then a cell, or some bytes anywhere in the segment.
void lie(fuzzing::input in, reactor& home, const std::shared_ptr<shm::shared_link>& link,
         shm::shm_segment& segment) {
  fuzzing::member us(home, 0, shm_slot(link, slot));
  shm::ring_writer peer(
      *reinterpret_cast<shm::cell_ring*>(segment.at(shm::offset::ring(slot, 0))));
  while (us.turn() && !in.ended()) {
    const unsigned step = in.take<std::uint8_t>();
    if (step < 200) {
      shm::cell_content cell;
      in.take_into(std::as_writable_bytes(std::span(cell.body)));
      cell.head = step % 3 == 0 ? 0 : step;
      const auto kind = static_cast<host::frame_kind>(cell.body[0] & 0xff);
      // A peer that lies about its chunks' states is the other kind of step.
      if (cell.head > 0 && cell.head <= 64) {
        // A slice stands in as many as it fills.
        const std::size_t bytes =
            kind == host::frame_kind::data ? cell.body[4] % 65'536 : 1;
        segment.at(shm::offset::slab(0))[cell.head - 1] =
            static_cast<std::byte>(shm::chunks_of(bytes));
      }
      if (kind == host::frame_kind::offer && cell.head <= 64) {
        describe_offer(in, segment, cell);
      }
      if (peer.reserve(1) != shm::room::enough) return;
      peer.fill(0, cell);
      peer.publish(1);
    } else if (step < 208) {
      us.give_up_one();
    } else {
      const std::size_t where = in.take<std::uint32_t>() % (shm::segment_bytes - 64);
      in.take_into({segment.at(where), step % 64});
    }
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static std::string why_not;
  static const auto segment = shm::shm_segment::make(why_not);
  if (!segment || segment->reserve(0, shm::segment_bytes) != 0) std::abort();
  // The run before may have scribbled on it.
  shm::segment_header header;
  header.bytes = shm::segment_bytes;
  std::memcpy(segment->at(0), &header, sizeof header);
  std::memset(segment->at(sizeof(shm::segment_header)), 0,
              shm::offset::chunks_begin - sizeof(shm::segment_header));

  reactor home(make_epoll_engine(), {.spin = duration::zero()});
  int ends[2];
  fuzzing::must(
      ::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends) == 0);
  const unique_descriptor peers_end(ends[1]);
  auto link = std::make_shared<shm::shared_link>(
      home, home.sockets(),
      parts_of_side_1(*segment, {home.sockets(), static_cast<socket_handle>(ends[0])}));
  lie(fuzzing::input(data, size), home, link, *segment);
  // What the engine holds of the link ends.
  for (int turns = 0; turns < 8; ++turns) home.turn();
  return 0;
}
