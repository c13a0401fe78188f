// Whatever a peer writes into the memory that it shares with us, whenever, the incoming
// half of a connection reads it without touching what is not its own.
#include <unistd.h>

#include <array>
#include <cstring>
#include <optional>

#include "host/cell_receiver.hpp"
#include "host/cell_sender.hpp"
#include "io/engines.hpp"

using namespace manyworlds;

namespace {

constexpr unsigned slot = 3;

struct silent_world final : backend_events {
  void connection_ended(rank_t, int) noexcept override {}
  void must_break(rank_t, cause, std::string) noexcept override {}
  void peer_left(rank_t) noexcept override {}
  void heard(rank_t) noexcept override {}
  void remark(std::string) noexcept override {}
};

shm::shared_parts parts_of_side_1(shm::shared_arena& made_by_peer) {
  std::string why_not;
  shm::shared_parts parts;
  parts.arena = shm::shared_arena::attach(::dup(made_by_peer.descriptor()), why_not);
  if (!parts.arena) std::abort();
  // The fuzzer's own memory stands for the peer's: reading it harms nobody.
  parts.pid = ::getpid();
  shm::memory_probe probe;
  probe.address = reinterpret_cast<std::uintptr_t>(probe.content.data());
  parts.memory = shm::remote_memory::of(parts.pid, probe, parts.memory_refusal);
  return parts;
}

struct target final : host::core, host::match_events, host::frame_handler {
  target(reactor& r, shm::shared_link& link)
      : core(r, world, options, 0, 2),
        matcher_(2, 64, *this),
        out(*this, link, slot),
        in(*this, 1, out, *this, link, slot) {
    matcher = &matcher_;
    peer_window = options.lane_window;
    for (std::size_t i = 0; i < receives.size(); ++i) {
      operation& op = receives[i].emplace(operation_kind::receive,
                                          [](operation&, operation_end) noexcept {});
      op.peer = 1;
      views[i] =
          buffer_view(std::span(memory[i]).first(i % 2 == 0 ? 8 : memory[i].size()));
      op.target = view_list(std::span(&views[i], 1));
      op.takes_fresh_lanes = i % 3 == 0;
      matcher_.post(op);
    }
  }
  void watch() noexcept override {}
  void tidy_soon() noexcept override {}
  void pull(host::inbound_message& m) override { in.pull(m); }
  void consumed(host::inbound_message& m, bool was_received) override {
    in.consumed(m, was_received);
  }
  const char* handle(const host::frame& f) override {
    if (f.kind == host::frame_kind::leave) in.drop_offers();
    return nullptr;
  }

  silent_world world;
  host_backend_options options;
  std::array<std::array<std::byte, 40'000>, 6> memory;
  std::array<buffer_view, 6> views;
  std::array<std::optional<operation>, 6> receives;
  host::lane_matcher matcher_;
  host::cell_sender out;
  host::cell_receiver in;
};

}  // namespace

// A step of the input: what it is, then a cell, or some bytes anywhere in the arena.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static std::string why_not;
  static const auto arena = shm::shared_arena::make(why_not);
  if (!arena || arena->reserve(0, shm::arena_bytes) != 0) std::abort();
  // The run before may have scribbled on it.
  shm::arena_header header;
  header.bytes = shm::arena_bytes;
  std::memcpy(arena->at(0), &header, sizeof header);
  std::memset(arena->at(sizeof(shm::arena_header)), 0,
              shm::offset::chunks_begin - sizeof(shm::arena_header));

  reactor home(make_engine(engine_kind::epoll).engine);
  auto link =
      std::make_shared<shm::shared_link>(home, home.sockets(), parts_of_side_1(*arena));
  auto t = std::make_unique<target>(home, *link);
  auto& ring = *reinterpret_cast<shm::cell_ring*>(arena->at(shm::offset::ring(slot, 0)));
  shm::ring_writer peer(ring);
  while (size > 0) {
    const unsigned step = data[0];
    ++data;
    --size;
    if (step < 200) {
      shm::cell_content cell;
      const std::size_t part = std::min(size, sizeof cell.body);
      std::memcpy(cell.body.data(), data, part);
      cell.head = step % 3 == 0 ? 0 : step;
      data += part;
      size -= part;
      // A peer that lies about its chunks' states is the other kind of step.
      if (cell.head > 0 && cell.head <= 64) {
        arena->at(shm::offset::slab(0))[cell.head - 1] = std::byte{1};
      }
      if (peer.reserve(1) != shm::room::enough) break;
      peer.fill(0, cell);
      peer.publish(1);
    } else {
      std::uint32_t where = 0;
      const std::size_t part = std::min(size, sizeof where);
      std::memcpy(&where, data, part);
      data += part;
      size -= part;
      const std::size_t bytes = std::min<std::size_t>(size, step % 64);
      std::memcpy(arena->at(where % (shm::arena_bytes - 64)), data, bytes);
      data += bytes;
      size -= bytes;
    }
    bool any = false;
    if (t->in.take(any)) break;
    for (int i = 0; i < 4 && t->in.has_to_read(); ++i) {
      if (t->in.read_slice()) return 0;
    }
    t->in.return_credit(step % 2 == 0);
    t->out.progress();
    if (t->out.violation()) break;
  }
  return 0;
}
