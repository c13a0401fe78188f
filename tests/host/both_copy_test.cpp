// A payload that both sides copy: slices come from its start, while its receiver reads
// from its end.
#include <chrono>
#include <string>

#include "cluster.hpp"
#include "host/cell_frame.hpp"

using namespace manyworlds;
using namespace manyworlds::host_tests;
using host::cell_slice_limit;
using host::frame;
using host::frame_kind;

namespace {

constexpr std::size_t size = std::size_t{2} << 20;

/// A CPU for each of two members, whatever this machine has.
host_backend_options with_cpus(rank_t cpus = 2) {
  host_backend_options options;
  options.cpus = cpus;
  return options;
}
frame about(frame_kind kind, std::uint32_t generation = 0, std::uint64_t word = 0) {
  frame f;
  f.kind = kind;
  f.id = 1;
  f.generation = generation;
  f.word = word;
  return f;
}

/// One end of the slot between members 0 and 1, which is ours: that member has no turn.
struct by_hand {
  by_hand(cluster& all, rank_t self)
      : c(all),
        process(*all[self].process),
        link(all.link(self, 1 - self)),
        ring(link.outgoing(cluster::slot)) {
    while (link.add_chunks()) {}
    c.sim().stop(process);
  }
  by_hand(const by_hand&) = delete;
  by_hand& operator=(const by_hand&) = delete;
  /// Its backend ends as any other.
  ~by_hand() { c.sim().resume(process); }
  bool has_room() { return ring.reserve(1) == shm::room::enough; }
  void say(shm::cell_content cell) {
    REQUIRE(has_room());
    ring.fill(0, cell);
    ring.publish(1);
    link.notify(cluster::slot);
  }
  void say(const frame& f) { say(host::cell_of(f)); }
  /// Says the slice at `offset`, if there are chunks for it.
  bool say_slice(std::span<const std::uint8_t> whole, std::size_t offset,
                 std::uint32_t generation = 1) {
    const std::size_t bytes = std::min(cell_slice_limit, whole.size() - offset);
    if (!has_room()) return false;
    const auto run =
        link.chunks_out().allocate(static_cast<unsigned>(shm::chunks_of(bytes)));
    if (run.result != shm::allocated_chunk::outcome::allocated) return false;
    std::memcpy(link.chunk_out(run.index), whole.data() + offset, bytes);
    frame f = about(frame_kind::data, generation, offset);
    f.bytes = bytes;
    shm::cell_content cell = host::cell_of(f);
    host::set_chunk(cell, run.index);
    say(cell);
    return true;
  }

  cluster& c;
  simulated_process& process;
  shm::shared_link& link;
  shm::ring_writer ring;
};

/// Member 0 receives what we, as member 1, offer.
struct offering {
  explicit offering(rank_t cpus = 2)
      : c(2, ground::shared_simulated, with_cpus(cpus)), own(c, 1) {
    receive(c, taker, 0, 1, got);
  }
  void offer() {
    ticket = *own.link.offers_out().offer();
    host::remote_payload where;
    where.ticket = ticket;
    where.address = reinterpret_cast<std::uintptr_t>(there.data());
    frame f = about(frame_kind::offer);
    f.bytes = size;
    shm::cell_content cell = host::cell_of(f);
    const auto brief = host::payload_in_one_place::of(where);
    std::memcpy(host::inline_content(cell), &brief, sizeof brief);
    own.say(cell);
  }
  /// A slice has come, and something was read.
  void begin() {
    offer();
    REQUIRE(own.say_slice(told, 0));
    REQUIRE(c.until([&] { return taker.bytes_moved > cell_slice_limit; }));
  }
  [[nodiscard]] bool is_taken() {
    return own.link.offers_out().poll(ticket) == shm::offer_sender::status::taken;
  }
  /// Returns how many bytes slices have brought; the rest was read.
  std::size_t from_slices() const {
    std::size_t at = 0;
    while (at < size && got[at] == told[at]) ++at;
    return at;
  }

  // What lies in memory, and what slices say: so it shows which of them has come.
  std::vector<std::uint8_t> there = std::vector<std::uint8_t>(size, 1);
  std::vector<std::uint8_t> told = std::vector<std::uint8_t>(size, 2);
  // The receive outlives its backend.
  std::vector<std::uint8_t> got = std::vector<std::uint8_t>(size);
  receive_op taker;
  cluster c;
  by_hand own;
  shm::offer_ticket ticket;
};

/// Member 0 sends to us, as member 1.
struct asked {
  explicit asked(host_backend_options options = with_cpus())
      : c(2, ground::shared_simulated, options),
        own(c, 1),
        in(own.link.incoming(cluster::slot)) {
    send(c, giver, 0, 1, sent);
    c.settle();
    REQUIRE(in.ready());
    shm::cell_content cell = in.front();
    host::payload_in_one_place where;
    std::memcpy(&where, host::inline_content(cell), sizeof where);
    ticket = where.whole().ticket;
    own.say(about(frame_kind::pull, 1, host::pull_reads_too));
    c.settle();
  }
  shm::chunk_writer& chunks() { return c.link(0, 1).chunks_out(); }
  /// Gives back the chunks of what has come.
  void take_all() {
    for (std::uint64_t index = 0; index < shm::chunk_states::chunks; ++index)
      own.link.chunks_in().free(index);
  }
  /// The slices that have come, by what they say; their chunks stay in use.
  std::vector<frame> slices() {
    std::vector<frame> all;
    while (in.ready()) {
      shm::cell_content cell = in.front();
      static_cast<void>(in.pop());
      frame f;
      const host::frame_limits any{std::size_t{1} << 20, cell_slice_limit, true};
      REQUIRE(decode(host::header_of(cell), any, f) == nullptr);
      if (f.kind == frame_kind::data) all.push_back(f);
    }
    return all;
  }

  std::vector<std::uint8_t> sent = pattern(size);
  send_op giver;
  cluster c;
  by_hand own;
  shm::ring_reader in;
  shm::offer_ticket ticket;
};

}  // namespace

TEST_SUITE("host both copy") {
  TEST_CASE("a sender that waits sends part of what its receiver reads") {
    if (testing::reading_is_refused_here()) return;
    for (const std::size_t bytes : {std::size_t{96} << 10, std::size_t{300'001}, size,
                                    (std::size_t{3} << 20) - 1}) {
      CAPTURE(bytes);
      cluster c(2, ground::shared_simulated, with_cpus());
      const auto sent = pattern(bytes);
      std::vector<std::uint8_t> got(bytes);
      send_op s;
      receive_op r;
      receive(c, r, 1, 0, got);
      send(c, s, 0, 1, sent);
      std::size_t helped = 0;
      REQUIRE(c.until([&] {
        if (!s.ended()) helped = std::max<std::size_t>(helped, s.bytes_moved);
        return s.ended() && r.ended();
      }));
      CHECK(s.done());
      CHECK(r.done());
      CHECK(got == sent);
      // A small one may be read before its sender has a turn.
      if (bytes >= size) CHECK(helped > 0);
      CHECK(r.bytes_moved == bytes);
      CHECK(c.at(0).counters().bytes_sent == bytes);
      CHECK(c.at(1).counters().bytes_received == bytes);
    }
  }

  TEST_CASE("an offer keeps no chunk from senders that could help with it") {
    const auto sent = pattern(size);
    send_op giver;
    cluster c(2, ground::shared_simulated, with_cpus());
    const by_hand stopped(c, 1);
    while (c.link(0, 1).add_chunks()) {}
    send(c, giver, 0, 1, sent);
    c.settle();
    REQUIRE(shm::ring_reader(stopped.link.incoming(cluster::slot)).ready());
    CHECK(c.link(0, 1).chunks_out().has_free(shm::chunk_states::chunks));
  }

  TEST_CASE("of messages that come at once each is whole, helped or not") {
    if (testing::reading_is_refused_here()) return;
    constexpr std::size_t count = 5;
    std::array<std::vector<std::uint8_t>, count> sent;
    std::array<std::vector<std::uint8_t>, count> got;
    std::array<send_op, count> s;
    std::array<receive_op, count> r;
    receive_op again;
    std::vector<std::uint8_t> second(400'001);
    cluster c(2, ground::shared_simulated, with_cpus());
    for (std::size_t i = 0; i < count; ++i) {
      // The last is too large to be helped, and one receive is given up.
      sent[i] =
          pattern(i + 1 < count ? 400'000 + i : 4U << 20, static_cast<unsigned>(1 + i));
      got[i].resize(sent[i].size());
      receive(c, r[i], 1, 0, got[i], i);
      send(c, s[i], 0, 1, sent[i], i);
    }
    REQUIRE(c.until([&] { return r[1].bytes_moved > 0; }));
    REQUIRE(c.at(1).withdraw(r[1]));
    receive(c, again, 1, 0, second, 1);
    REQUIRE(c.until([&] {
      return std::all_of(s.begin(), s.end(),
                         [](const send_op& op) { return op.ended(); });
    }));
    c.settle();
    for (std::size_t i = 0; i < count; ++i) {
      CAPTURE(i);
      CHECK(s[i].done());
      CHECK((i == 1 ? second : got[i]) == sent[i]);
    }
    CHECK(again.done());
  }

  TEST_CASE("what may no longer be read in the midst is asked for from its start") {
    if (testing::reading_is_refused_here()) return;
    offering o;
    o.begin();
    REQUIRE(o.c.link(0, 1).stop_reading());
    o.c.settle();
    CHECK(o.taker.bytes_moved == 0);
    for (std::size_t at = 0; at < size;) {
      if (o.own.say_slice(o.told, at, 2)) at += cell_slice_limit;
      o.c.sim().run_for(std::chrono::microseconds(10));
    }
    CHECK_FALSE(o.taker.ended());
    o.own.say(about(frame_kind::complete, 2));
    REQUIRE(o.c.until([&] { return o.taker.ended(); }));
    CHECK(o.taker.done());
    CHECK(o.got == o.told);
  }

  TEST_CASE("a sender that computes is read, and asked for nothing that must come") {
    if (testing::reading_is_refused_here()) return;
    offering o;
    o.offer();
    REQUIRE(o.c.until([&] { return o.taker.ended(); }));
    CHECK(o.taker.done());
    CHECK(o.got == o.there);
    CHECK(o.is_taken());
  }

  TEST_CASE("what slices have brought is not read, and what was read not brought") {
    if (testing::reading_is_refused_here()) return;
    for (const std::size_t slices : {1U, 3U, 12U}) {
      CAPTURE(slices);
      offering o;
      o.offer();
      for (std::size_t i = 0; i < slices; ++i)
        REQUIRE(o.own.say_slice(o.told, i * cell_slice_limit));
      REQUIRE(o.c.until([&] { return o.taker.ended(); }));
      CHECK(o.taker.done());
      CHECK(o.taker.bytes_moved == size);
      CHECK(o.from_slices() == slices * cell_slice_limit);
      CHECK(all_are(std::span(o.got).subspan(o.from_slices()), 1));
      CHECK(o.is_taken());
    }
  }

  TEST_CASE("where slices meet what was read the message is whole, to the byte") {
    if (testing::reading_is_refused_here()) return;
    offering o;
    o.offer();
    REQUIRE(o.c.until([&] { return o.taker.bytes_moved > 0; }));
    const std::size_t read = o.taker.bytes_moved;
    REQUIRE(read < size);
    // Slices go on behind the place where they meet.
    for (std::size_t at = 0; at < size;) {
      if (o.own.say_slice(o.told, at)) at += cell_slice_limit;
      o.c.sim().run_for(std::chrono::microseconds(1));
    }
    REQUIRE(o.c.until([&] { return o.taker.ended(); }));
    CHECK(o.taker.done());
    CHECK(o.taker.bytes_moved == size);
    CHECK(o.from_slices() > 0);
    CHECK(o.from_slices() <= size - read);
    CHECK(all_are(std::span(o.got).subspan(o.from_slices()), 1));
    o.c.settle();
    CHECK(o.c[0].events.quiet());
    // The chunks of slices that came too late have come back, too.
    CHECK(o.own.link.chunks_out().has_free(shm::chunk_states::chunks));
  }

  TEST_CASE("law 4: what was copied of a send that is given up is no message") {
    if (testing::reading_is_refused_here()) return;
    offering o;
    o.begin();
    using status = shm::offer_sender::status;
    REQUIRE(o.own.link.offers_out().withdraw(o.ticket) == status::withdrawn);
    // Its memory may have another use from now on.
    std::fill(o.there.begin(), o.there.end(), std::uint8_t{9});
    for (std::size_t at = cell_slice_limit; at < size;) {
      if (o.own.say_slice(o.told, at)) at += cell_slice_limit;
      o.c.sim().run_for(std::chrono::microseconds(10));
    }
    o.c.settle();
    CHECK_FALSE(o.taker.ended());
    CHECK(o.c[0].events.quiet());
    o.own.say(about(frame_kind::withdraw));
    REQUIRE(o.c.until([&] { return o.taker.ended(); }));
    CHECK(o.taker.failed(cause::cancelled_by_peer));
  }

  TEST_CASE("a receive that is given up in the midst leaves the message whole") {
    if (testing::reading_is_refused_here()) return;
    std::vector<std::uint8_t> next(size);
    receive_op second;
    offering o;
    o.begin();
    REQUIRE(o.c.at(0).withdraw(o.taker));
    receive(o.c, second, 0, 1, next);
    // Slices of a pull that has ended are none of the next one's.
    REQUIRE(o.own.say_slice(o.told, 0));
    REQUIRE(o.own.say_slice(o.told, cell_slice_limit));
    REQUIRE(o.c.until([&] { return second.ended(); }));
    CHECK(second.done());
    CHECK(next == o.there);
  }

  TEST_CASE("a granted message that comes back in the midst goes out again, whole") {
    if (testing::reading_is_refused_here()) return;
    // What no receive takes has all offers but those that are kept for granted messages.
    const auto untaken = pattern(100'000);
    std::vector<send_op> before(shm::offer_table::offers);
    cluster c(2, ground::shared_simulated, with_cpus());
    for (send_op& op : before) send(c, op, 0, 1, untaken, 1);
    c.settle();
    const auto sent = pattern(size, 2);
    std::vector<std::uint8_t> first(size);
    std::vector<std::uint8_t> second(size);
    send_op s;
    receive_op given_up;
    receive_op r;
    send(c, s, 0, 1, sent, 2);
    c.settle();
    REQUIRE(c.at(0).counters().messages_sent < before.size());
    receive(c, given_up, 1, 0, first, 2);
    REQUIRE(c.until([&] { return s.bytes_moved > 0 && given_up.bytes_moved > 0; }));
    CHECK_FALSE(given_up.ended());
    REQUIRE(c.at(1).withdraw(given_up));
    c.settle();
    CHECK_FALSE(s.ended());
    CHECK(s.bytes_moved == 0);
    receive(c, r, 1, 0, second, 2);
    REQUIRE(c.until([&] { return s.ended() && r.ended(); }));
    CHECK(s.done());
    CHECK(r.done());
    CHECK(second == sent);
    CHECK(c[0].events.quiet());
    CHECK(c[1].events.quiet());
    for (send_op& op : before) c.at(0).withdraw(op);
  }

  TEST_CASE("law 11: what only a pulled message has, and slices out of turn, are named") {
    if (testing::reading_is_refused_here()) return;
    struct lie {
      const char* verdict;
      frame said;
    };
    frame beyond = about(frame_kind::data, 1, 64);
    beyond.bytes = 8;
    frame early = about(frame_kind::data, 2, 0);
    early.bytes = 8;
    const std::vector<lie> lies{
        {"a message that ends before its last byte", about(frame_kind::complete, 1)},
        {"a slice that does not follow the one before", beyond},
        {"a slice of a pull that was not made", early},
    };
    for (const lie& l : lies) {
      CAPTURE(l.verdict);
      offering o;
      o.offer();
      o.own.say(l.said);
      REQUIRE(o.c.until([&] { return !o.c[0].events.broken_by.empty(); }));
      CHECK(o.c[0].events.reason == std::string("rank 1 sent ") + l.verdict);
      CHECK(o.c[0].events.cause == cause::protocol_error);
    }
  }

  TEST_CASE("law 11: the end of a message comes from who reads it, too") {
    if (testing::reading_is_refused_here()) return;
    offering o;
    o.offer();
    REQUIRE(o.own.say_slice(o.told, 0));
    REQUIRE(o.c.until([&] { return o.taker.bytes_moved > 0; }));
    REQUIRE(o.own.link.offers_out().withdraw(o.ticket) ==
            shm::offer_sender::status::withdrawn);
    for (std::size_t at = cell_slice_limit; at < size;) {
      if (o.own.say_slice(o.told, at)) at += cell_slice_limit;
      o.c.sim().run_for(std::chrono::microseconds(10));
    }
    o.own.say(about(frame_kind::complete, 1));
    REQUIRE(o.c.until([&] { return !o.c[0].events.broken_by.empty(); }));
    CHECK(o.c[0].events.reason ==
          "rank 1 sent the end of a message that its receiver ends");
    CHECK_FALSE(o.taker.done());
  }

  TEST_CASE("a sender leaves chunks to others, and waits for no receiver that rests") {
    host_backend_options hasty = with_cpus();
    hasty.stall_limit = std::chrono::milliseconds(20);
    asked a(hasty);
    CHECK(a.slices().size() > 1);
    CHECK(a.chunks().has_free(shm::chunk_states::chunks / 4));
    CHECK_FALSE(a.chunks().has_free(shm::chunk_states::chunks / 4 + 4));
    // No byte moves for longer than a transfer may stand still, and its reactor sleeps.
    a.c.sim().run_for(std::chrono::milliseconds(200));
    CHECK(a.c[0].events.quiet());
    CHECK_FALSE(a.c[0].home->turn());
    REQUIRE(a.own.link.offers_in().take(a.ticket));
    a.own.say(about(frame_kind::taken));
    REQUIRE(a.c.until([&] { return a.giver.ended(); }));
    CHECK(a.giver.done());
    CHECK(a.giver.bytes_moved == size);
  }

  TEST_CASE("slices go on as chunks come back, and again from the start of a new pull") {
    asked a;
    std::vector<frame> first = a.slices();
    const std::size_t before = first.size();
    REQUIRE(before > 1);
    a.take_all();
    // It is told of nothing, and looks by itself only as long as it is awake.
    a.own.link.wake_peer();
    a.c.settle();
    const std::vector<frame> more = a.slices();
    REQUIRE_FALSE(more.empty());
    CHECK(more.front().word == first.back().word + first.back().bytes);
    a.own.say(about(frame_kind::unpull, 1));
    a.take_all();
    a.own.say(about(frame_kind::pull, 2, host::pull_reads_too));
    a.c.settle();
    const std::vector<frame> again = a.slices();
    REQUIRE_FALSE(again.empty());
    CHECK(again.front().word == 0);
    CHECK(again.front().generation == 2);
  }

  TEST_CASE("law 11: a message is not taken because slices of it have come") {
    asked a;
    a.own.say(about(frame_kind::taken));
    REQUIRE(a.c.until([&] { return !a.c[0].events.broken_by.empty(); }));
    CHECK(a.c[0].events.reason == "rank 1 sent a message taken that it did not take");
    CHECK_FALSE(a.giver.ended());
  }

  TEST_CASE("law 4: a send that helps is given up at once") {
    asked a;
    CHECK_FALSE(a.slices().empty());
    CHECK(a.c.at(0).withdraw(a.giver));
    CHECK_FALSE(a.own.link.offers_in().take(a.ticket));
    // Nor does it go on when it has room again.
    a.take_all();
    a.own.link.wake_peer();
    a.c.settle();
    CHECK(a.slices().empty());
    CHECK(a.c[0].events.quiet());
  }

  TEST_CASE("a receiver waits for slices that do not come for microseconds alone") {
    if (testing::reading_is_refused_here()) return;
    const auto took = [](bool slice) {
      offering o;
      o.offer();
      if (slice) REQUIRE(o.own.say_slice(o.told, 0));
      const time_point offered = o.c[0].home->now();
      REQUIRE(o.c.until([&] { return o.taker.ended(); }));
      return o.c[0].home->now() - offered;
    };
    CHECK(took(true) < took(false) + std::chrono::microseconds(100));
  }

  TEST_CASE("law 11: an offer's word that no receiver sets is noticed beside help, too") {
    asked a;
    const int from_sender = a.own.link.segment().peer_side();
    auto* const offers = reinterpret_cast<shm::offer_table*>(
        a.own.link.segment().at(shm::offset::offers(from_sender)));
    offers->words[a.ticket.index].store(~std::uint64_t{0});
    a.take_all();
    a.own.link.wake_peer();
    REQUIRE(a.c.until([&] { return !a.c[0].events.broken_by.empty(); }));
    CHECK(a.c[0].events.reason ==
          "rank 1 sent an offer's word that a receiver cannot set");
    CHECK(a.c[0].events.cause == cause::protocol_error);
  }

  TEST_CASE("members of other hosts need none of this host's CPUs") {
    if (testing::reading_is_refused_here()) return;
    const auto helped = [](rank_t apart, std::uint64_t seed) {
      const auto sent = pattern(size);
      std::vector<std::uint8_t> got(size);
      send_op s;
      receive_op r;
      cluster c(4, ground::shared_simulated, with_cpus(2), seed, true, apart);
      receive(c, r, 1, 0, got);
      send(c, s, 0, 1, sent);
      std::size_t most = 0;
      REQUIRE(c.until([&] {
        if (!s.ended()) most = std::max<std::size_t>(most, s.bytes_moved);
        return s.ended() && r.ended();
      }));
      CHECK(got == sent);
      return most;
    };
    // By seed, a sender may sleep before it is asked.
    const auto ever_helped = [&](rank_t apart) {
      std::size_t most = 0;
      for (std::uint64_t seed = 1; seed <= 10; ++seed)
        most = std::max(most, helped(apart, seed));
      return most > 0;
    };
    CHECK(ever_helped(2));
    CHECK_FALSE(ever_helped(1));
  }

  TEST_CASE("with fewer CPUs than members none is asked for help") {
    if (testing::reading_is_refused_here()) return;
    offering o(1);
    o.offer();
    REQUIRE(o.own.say_slice(o.told, 0));
    REQUIRE(o.c.until([&] { return !o.c[0].events.broken_by.empty(); }));
    CHECK(o.c[0].events.reason == "rank 1 sent a slice of a pull that was not made");
  }
}
