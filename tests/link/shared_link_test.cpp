// The user reactor's side of a shared link: who is told of what lies in a slot, and who
// is woken for it.
#include "link/shared_link.hpp"

#include <doctest/doctest.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <thread>

#include "io/posix_network.hpp"
#include "io/reactor_fixture.hpp"

using namespace manyworlds;
using namespace manyworlds::shm;
using namespace manyworlds::testing;

TEST_SUITE_BEGIN("shared_link");

namespace {

struct two_parts {
  two_parts() {
    std::string why_not;
    first.segment = shm_segment::make(why_not);
    REQUIRE_MESSAGE(first.segment, why_not);
    second.segment = shm_segment::attach(::dup(first.segment->descriptor()), why_not);
    REQUIRE_MESSAGE(second.segment, why_not);
    REQUIRE(first.segment->reserve(0, segment_bytes) == 0);
    int ends[2];
    REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends) ==
            0);
    first.wake_socket = {posix_network(), static_cast<socket_handle>(ends[0])};
    second.wake_socket = {posix_network(), static_cast<socket_handle>(ends[1])};
  }
  shared_parts first;
  shared_parts second;
};

/// Takes numbers from its slot, and checks that they come in order.
struct reader final : slot_listener {
  reader(shared_link& l, unsigned slot) : ring(l.incoming(slot)) {}

  bool poll() noexcept override {
    if (!ring.ready()) return false;
    in_order = in_order && ring.front().body[0] == taken;
    (void)ring.pop();
    ++taken;
    return true;
  }
  bool has_something() noexcept override { return ring.ready(); }
  void wake_ups_ended() noexcept override {}

  ring_reader ring;
  std::uint64_t taken = 0;
  bool in_order = true;
};

/// As soon as it is busy each of its steps takes all of a turn.
struct long_steps final : slot_listener {
  explicit long_steps(reactor& r) : home(r) {}

  bool poll() noexcept override {
    if (!busy) return false;
    home.note_long_step();
    while (!home.is_turn_used_up()) continue;
    ++looks;
    return true;
  }
  bool has_something() noexcept override { return busy; }
  void wake_ups_ended() noexcept override {}

  reactor& home;
  bool busy = false;
  int looks = 0;
};

void put(shared_link& l, ring_writer& to, unsigned slot, std::uint64_t number) {
  REQUIRE(to.reserve(1) == room::enough);
  cell_content c;
  c.body[0] = number;
  to.fill(0, c);
  to.publish(1);
  l.notify(slot);
}

struct one_side {
  one_side(engine_kind kind, shared_parts parts, duration spin = duration::zero())
      : f(kind, spin),
        link(std::make_shared<shared_link>(f.get(), f.get().sockets(),
                                           std::move(parts))) {}
  /// What the engine holds of the link ends before the reactor does.
  void close() {
    std::weak_ptr<shared_link> left = link;
    link.reset();
    f.run_until([&] { return left.expired(); });
  }
  reactor_fixture f;
  std::shared_ptr<shared_link> link;
};

}  // namespace

TEST_CASE("law 7: a reactor that sleeps is woken for what is written into a slot") {
  FOR_EACH_ENGINE(kind) {
    two_parts parts;
    one_side a(kind, std::move(parts.first));
    one_side b(kind, std::move(parts.second));
    reader at_b(*b.link, 7);
    b.link->attach(7, at_b);
    ring_writer from_a(a.link->outgoing(7));
    // The other thread writes whenever this one says that it sleeps.
    const auto& sleeps = *reinterpret_cast<std::atomic<std::uint32_t>*>(
        a.link->segment().at(offset::receiver(1)));
    std::thread writing([&] {
      const time_limit limit;
      for (std::uint64_t i = 0; i < 50; ++i) {
        while (sleeps.load() == 0 && !limit.passed()) std::this_thread::yield();
        put(*a.link, from_a, 7, i);
      }
    });
    b.f.run_until([&] { return at_b.taken == 50; });
    writing.join();
    CHECK(at_b.in_order);
    b.link->detach(7);
    b.close();
    a.close();
  }
}

TEST_CASE("no wake-up is lost between two reactors that sleep after each message") {
  FOR_EACH_ENGINE(kind) {
    constexpr std::uint64_t rounds = 2000;
    two_parts parts;
    auto play = [&](shared_parts own, bool begins) {
      one_side me(kind, std::move(own));
      reader in(*me.link, 3);
      ring_writer out(me.link->outgoing(3));
      me.link->attach(3, in);
      std::uint64_t sent = 0;
      if (begins) put(*me.link, out, 3, sent++);
      me.f.run_until([&] {
        while (sent < in.taken + (begins ? 1 : 0) && sent < rounds) {
          put(*me.link, out, 3, sent);
          ++sent;
        }
        return in.taken == rounds && sent == rounds;
      });
      me.link->detach(3);
      me.close();
      return in.in_order;
    };
    std::atomic<bool> other{false};
    std::thread second([&] { other = play(std::move(parts.second), false); });
    CHECK(play(std::move(parts.first), true));
    second.join();
    CHECK(other);
  }
}

TEST_CASE("a slot that was silent for long gets wake-ups, and loses nothing") {
  two_parts parts;
  one_side a(engine_kind::epoll, std::move(parts.first));
  one_side b(engine_kind::epoll, std::move(parts.second));
  reader at_b(*b.link, 255);
  reader other(*b.link, 0);
  b.link->attach(255, at_b);
  b.link->attach(0, other);
  ring_writer from_a(a.link->outgoing(255));
  for (std::uint64_t i = 0; i < 5; ++i) {
    // Long enough for every slot to be parked.
    for (int turn = 0; turn < 5000; ++turn) b.f.get().turn();
    put(*a.link, from_a, 255, i);
    b.f.run_until([&] { return at_b.taken == i + 1; });
  }
  CHECK(at_b.in_order);
  CHECK(other.taken == 0);
  b.link->detach(255);
  b.link->detach(0);
  b.close();
  a.close();
}

TEST_CASE("law 9: slots with steps that take all of a turn have their turns in turn") {
  two_parts parts;
  one_side a(engine_kind::epoll, std::move(parts.first));
  one_side b(engine_kind::epoll, std::move(parts.second));
  long_steps first(b.f.get());
  long_steps second(b.f.get());
  reader other(*b.link, 7);
  b.link->attach(3, first);
  b.link->attach(5, second);
  b.link->attach(7, other);
  // Long enough for every slot to be parked.
  for (int turn = 0; turn < 5000; ++turn) b.f.get().turn();
  first.busy = second.busy = true;
  b.link->set_pending(3, true);
  b.link->set_pending(5, true);
  ring_writer from_a(a.link->outgoing(7));
  for (std::uint64_t i = 0; i < 5; ++i) {
    put(*a.link, from_a, 7, i);
    for (int turn = 0; turn < 6; ++turn) b.f.get().turn();
    CHECK(other.taken == i + 1);
  }
  CHECK(first.looks >= 5);
  CHECK(second.looks >= 5);
  for (const unsigned slot : {3u, 5u, 7u}) b.link->detach(slot);
  b.close();
  a.close();
}

TEST_CASE(
    "laws 6 and 7: chunks that rest give their memory back, and then no timer runs") {
  FOR_EACH_ENGINE(kind) {
    two_parts parts;
    const int file = parts.first.segment->descriptor();
    one_side a(kind, std::move(parts.first));
    reader at_a(*a.link, 7);
    a.link->attach(7, at_a);
    const auto memory = [file] {
      struct stat now {};
      REQUIRE(::fstat(file, &now) == 0);
      return now.st_blocks;
    };
    while (a.link->add_chunks()) {}
    const auto held = a.link->chunks_out().allocate(3);
    REQUIRE(held.result == allocated_chunk::outcome::allocated);
    const auto before = memory();
    a.f.run_until([&] { return memory() < before; });
    // What is in use stays.
    const auto with_three = memory();
    a.link->chunks_out().give_back(held.index);
    a.f.run_until([&] { return memory() < with_three; });
    CHECK_FALSE(a.f.get().timers().next().has_value());
    a.link->detach(7);
    a.close();
  }
}

TEST_CASE("law 11: rings for slots that are not open are ignored") {
  two_parts parts;
  shm_segment& raw = *parts.first.segment;
  one_side b(engine_kind::epoll, std::move(parts.second));
  reader at_b(*b.link, 1);
  b.link->attach(1, at_b);
  for (std::size_t i = 0; i < 32; ++i) raw.at(offset::wake_ups(1))[i] = std::byte{0xff};
  for (int turn = 0; turn < 10; ++turn) b.f.get().turn();
  CHECK(at_b.taken == 0);
  b.link->detach(1);
  b.close();
}

TEST_CASE(
    "law 7: a peer that closes its wake-up socket and lives on does not keep us busy") {
  two_parts parts;
  one_side a(engine_kind::epoll, std::move(parts.first));
  one_side b(engine_kind::epoll, std::move(parts.second));
  reader at_b(*b.link, 9);
  b.link->attach(9, at_b);
  ring_writer from_a(a.link->outgoing(9));
  put(*a.link, from_a, 9, 0);
  shm_segment& raw = b.link->segment();
  b.f.run_until([&] { return at_b.taken == 1; });
  a.close();  // its end of the socket is closed; its memory stays ours
  for (int turn = 0; turn < 10; ++turn) b.f.get().turn();
  cell_ring& ring = *reinterpret_cast<cell_ring*>(raw.at(offset::ring(9, 0)));
  ring_writer still(ring, 1);
  cell_content c;
  c.body[0] = 1;
  still.fill(0, c);
  still.publish(1);
  // It is found without a wake-up, and not by turning all the time.
  b.f.run_until([&] { return at_b.taken == 2; });
  CHECK(at_b.in_order);
  b.link->detach(9);
  b.close();
}

TEST_SUITE_END();
