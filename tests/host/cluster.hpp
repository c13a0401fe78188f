// Cluster: the backends of all members of one world on one thread, over real loopback
// streams or simulated ones.
#pragma once

#include <doctest/doctest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "grounds.hpp"
#include "link/shared_link.hpp"
#include "operations.hpp"
#include "support/pattern.hpp"
#include "testing/simulated_kernel.hpp"

namespace manyworlds::host_tests {

using testing::all_are;
using testing::pattern;

struct member {
  simulated_process* process = nullptr;
  /// For shared pools that it sends from.
  std::shared_ptr<pool_registry> pools = std::make_shared<pool_registry>();
  std::unique_ptr<reactor> home;
  recorded_events events;
  std::unique_ptr<host_backend> backend;
  flag_work quiet;
  flag_work gone;
  bool quiesced = false;
};

class cluster {
 public:
  /// Of members that share memory the last `apart` do not: they live elsewhere.
  explicit cluster(rank_t size, ground where = ground::epoll,
                   host_backend_options options = {}, std::uint64_t seed = 1,
                   bool with_backends = true, rank_t apart = 0);
  ~cluster() { end(); }

  member& operator[](rank_t rank) { return *members_[static_cast<std::size_t>(rank)]; }
  host_backend& at(rank_t rank) { return *(*this)[rank].backend; }
  simulation& sim() { return *sim_; }
  /// What `rank` has of the memory shared with `peer`, on such a ground.
  shm::shared_link& link(rank_t rank, rank_t peer) {
    return *links_[static_cast<std::size_t>(rank)][static_cast<std::size_t>(peer)].lock();
  }
  static constexpr unsigned slot = 5;
  static constexpr const char* copy_thread_name = "mw-test-cpy";
  /// The streams of a member that has no backend.
  std::vector<socket>& streams(rank_t rank) {
    return sockets_[static_cast<std::size_t>(rank)];
  }

  bool turn() {
    bool any = false;
    for (auto& m : members_) any |= m->home->turn();
    return any;
  }
  /// False if it did not come true: a hang is an answer.
  bool until(const std::function<bool()>& finished,
             std::chrono::seconds limit = std::chrono::seconds(20)) {
    if (sim_) return sim_->run_until(finished);
    const auto end = std::chrono::steady_clock::now() + limit;
    while (!finished()) {
      if (!turn() && std::chrono::steady_clock::now() > end) return finished();
    }
    return true;
  }
  /// Turns until nothing moves for a while.
  void settle() {
    if (sim_) return sim_->run_for(std::chrono::milliseconds(100));
    for (int idle = 0; idle < 2000;) idle = turn() ? 0 : idle + 1;
  }

  void quiesce(rank_t rank) {
    member& m = (*this)[rank];
    if (m.quiesced || !m.backend) return;
    m.quiesced = true;
    m.backend->quiesce(m.quiet);
  }
  void end() {
    for (std::size_t r = 0; r < members_.size(); ++r) quiesce(static_cast<rank_t>(r));
    CHECK(until([&] {
      for (auto& m : members_) {
        if (m->backend && m->quiet.runs != 1) return false;
      }
      return true;
    }));
    for (auto& m : members_) m->backend.reset();
    sockets_.clear();
    slots_.clear();
    // What the engines hold of shared links ends.
    if (is_shared(where_)) settle();
    if (sim_) {
      for (auto& m : members_) {
        CHECK(m->process->open_sockets() == 0);
        m->process->detach(*m->home);
      }
    }
    members_.clear();
  }

 private:
  void connect(rank_t from, rank_t to);
  void share(rank_t from, rank_t to);

  ground where_;
  std::unique_ptr<simulation> sim_;
  std::vector<std::unique_ptr<member>> members_;
  std::vector<std::vector<socket>> sockets_;
  std::vector<std::vector<shm_slot>> slots_;
  std::vector<std::vector<std::weak_ptr<shm::shared_link>>> links_;
  /// On `ground::shared` a second thread reads part of what is large.
  std::shared_ptr<shm::copy_thread> helper_;
};

inline cluster::cluster(rank_t size, ground where, host_backend_options options,
                        std::uint64_t seed, bool with_backends, rank_t apart)
    : where_(where) {
  if (where != ground::shared_in_runs) options.unasked_in_memory = shm::chunk_size;
  if (is_simulated(where)) {
    // A seed does the same on each machine.
    if (options.cpus == 0) options.cpus = 2;
    simulation_options network;
    // Who is being read stays awake for a while: time must pass meanwhile.
    if (is_shared(where)) network.longest_turn = std::chrono::microseconds(2);
    sim_ = std::make_unique<simulation>(seed, network);
  }
  for (rank_t rank = 0; rank < size; ++rank) {
    auto m = std::make_unique<member>();
    if (sim_) {
      const std::string name = "m" + std::to_string(rank);
      m->process = is_shared(where) && rank > 0
                       ? &sim_->add_process(name, *members_.front()->process)
                       : &sim_->add_process(name);
      m->home = std::make_unique<reactor>(
          m->process->make_engine(engine_kind::automatic).engine);
      m->process->attach(*m->home);
    } else {
      m->home = std::make_unique<reactor>(make_engine(engine_of(where)).engine);
    }
    members_.push_back(std::move(m));
    sockets_.emplace_back(static_cast<std::size_t>(size));
    slots_.emplace_back(static_cast<std::size_t>(size));
    links_.emplace_back(static_cast<std::size_t>(size));
  }
  for (rank_t a = 0; a < size; ++a) {
    for (rank_t b = a + 1; b < size; ++b) {
      is_shared(where) && b < size - apart ? share(a, b) : connect(a, b);
    }
  }
  if (!with_backends) return;
  for (rank_t rank = 0; rank < size; ++rank) {
    member& m = (*this)[rank];
    std::vector<data_channel> channels;
    for (rank_t peer = 0; peer < size; ++peer) {
      const auto at = static_cast<std::size_t>(peer);
      shm_slot& slot = slots_[static_cast<std::size_t>(rank)][at];
      if (slot) {
        channels.emplace_back(std::move(slot));
      } else {
        channels.emplace_back(std::move(streams(rank)[at]));
      }
    }
    m.backend = std::make_unique<host_backend>(*m.home, m.events, options, rank,
                                               std::move(channels));
  }
}

inline void cluster::share(rank_t from, rank_t to) {
  std::string why_not;
  shm::shared_parts parts[2];
  parts[0].segment = shm::shm_segment::make(why_not);
  REQUIRE_MESSAGE(parts[0].segment, why_not);
  parts[1].segment =
      shm::shm_segment::attach(::dup(parts[0].segment->descriptor()), why_not);
  REQUIRE_MESSAGE(parts[1].segment, why_not);
  socket_handle wake_sockets[2];
  if (sim_) {
    const auto pair =
        simulated_kernel::make_pair(*(*this)[from].process, *(*this)[to].process);
    wake_sockets[0] = pair.first;
    wake_sockets[1] = pair.second;
  } else {
    int ends[2];
    REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends) ==
            0);
    wake_sockets[0] = static_cast<socket_handle>(ends[0]);
    wake_sockets[1] = static_cast<socket_handle>(ends[1]);
  }
  if (where_ == ground::shared && !helper_) {
    helper_ = std::make_shared<shm::copy_thread>(copy_thread_name);
  }
  int line[2];
  REQUIRE(::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, line) ==
          0);
  const rank_t ranks[] = {from, to};
  for (int side = 0; side < 2; ++side) {
    shm::shared_parts& p = parts[side];
    REQUIRE(p.segment->reserve(shm::offset::ring(slot, 0), 2 * sizeof(shm::cell_ring)) ==
            0);
    p.line = unique_descriptor(line[side]);
    shm::memory_probe probe;
    probe.address = reinterpret_cast<std::uintptr_t>(probe.content.data());
    if (where_ != ground::asking) {
      p.memory = shm::remote_memory::of(::getpid(), probe, p.memory_refusal);
    }
    member& m = (*this)[ranks[side]];
    if (sim_ && p.memory) {
      p.memory = shm::remote_memory(
          ::getpid(), std::make_shared<slow_memory>(*std::move(p.memory), *m.process));
    }
    p.wake_socket = socket(m.home->sockets(), wake_sockets[side]);
    auto link = std::make_shared<shm::shared_link>(*m.home, m.home->sockets(),
                                                   std::move(p), m.pools, helper_);
    links_[static_cast<std::size_t>(ranks[side])]
          [static_cast<std::size_t>(ranks[1 - side])] = link;
    slots_[static_cast<std::size_t>(ranks[side])]
          [static_cast<std::size_t>(ranks[1 - side])] = shm_slot(std::move(link), slot);
  }
}

inline void cluster::connect(rank_t from, rank_t to) {
  member& a = (*this)[from];
  member& b = (*this)[to];
  network& listening = b.home->sockets();
  const io_result opened = listening.listen(socket_address::loopback(0), 1);
  REQUIRE(opened.ok());
  socket listener(listening, opened.handle());
  const std::uint16_t port = listening.local_address(opened.handle()).port();
  const socket_address address =
      b.process ? b.process->address(port) : socket_address::loopback(port);
  const io_result stream = a.home->sockets().open_stream(address);
  REQUIRE(stream.ok());
  socket dialled(a.home->sockets(), stream.handle());
  waited_request accept;
  accept.kind = io_kind::accept;
  accept.socket = opened.handle();
  waited_request dial;
  dial.kind = io_kind::connect;
  dial.socket = stream.handle();
  dial.address = address;
  b.home->io().submit(accept);
  a.home->io().submit(dial);
  REQUIRE(until([&] { return accept.ended_ && dial.ended_; }));
  REQUIRE(dial.result.ok());
  REQUIRE(accept.result.ok());
  streams(from)[static_cast<std::size_t>(to)] = std::move(dialled);
  streams(to)[static_cast<std::size_t>(from)] = socket(listening, accept.result.handle());
}

/// Starts a send of `buffer`; the operation must outlive it.
template <class Buffer>
void send(cluster& c, test_operation& op, rank_t from, rank_t to, Buffer&& buffer,
          std::uint64_t on = 0, std::uint64_t user = 0) {
  op.peer = to;
  op.on = lane(on);
  op.user = user_word(user);
  op.from_list = gather_list(std::forward<Buffer>(buffer));
  op.source = op.from_list.views();
  c.at(from).start(op);
}

template <class Buffer>
void receive(cluster& c, test_operation& op, rank_t at, rank_t peer, Buffer&& buffer,
             std::uint64_t on = 0) {
  op.peer = peer;
  op.on = lane(on);
  op.into_list = scatter_list(std::forward<Buffer>(buffer));
  op.target = op.into_list.views();
  c.at(at).start(op);
}

/// Sends from member 0 to member 1: done at both ends, or the test is over.
template <class Sent, class Got>
void carry(cluster& c, const Sent& sent, Got&& got) {
  send_op s;
  receive_op r;
  receive(c, r, 1, 0, std::forward<Got>(got));
  send(c, s, 0, 1, sent);
  REQUIRE(c.until([&] { return s.ended() && r.ended(); }));
  REQUIRE(s.done());
  REQUIRE(r.done());
  CHECK(r.bytes_moved == r.info.bytes);
}

/// What member 1 receives next from member 0.
inline std::vector<std::uint8_t> next_received(cluster& c, std::size_t bytes,
                                               std::uint64_t on = 0) {
  std::vector<std::uint8_t> got(bytes);
  receive_op r;
  receive(c, r, 1, 0, got, on);
  REQUIRE(c.until([&] { return r.ended(); }));
  CHECK(r.done());
  return got;
}

}  // namespace manyworlds::host_tests
