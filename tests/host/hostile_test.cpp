// What a peer that is not ours can do to us: end its own connection, by a named error.
#include <sys/socket.h>

#include <deque>

#include "cluster.hpp"
#include "host/frame.hpp"

using namespace manyworlds;
using namespace manyworlds::host_tests;
using host::frame;
using host::frame_kind;

namespace {

/// 64 KiB for a lane: two messages of 30'000 bytes.
host_backend_options narrow_window() {
  host_backend_options options;
  options.eager_limit = 32 * 1024;
  options.lane_window = 64 * 1024;
  return options;
}

/// Member 0 has a backend; the stream of member 1 is ours to write on.
struct stranger {
  explicit stranger(host_backend_options options = narrow_window())
      : c(2, ground::epoll, {}, 1, false) {
    member& m = c[0];
    m.backend = std::make_unique<host_backend>(*m.home, m.events, options, 0,
                                               std::move(c.streams(0)));
  }

  void say(std::span<const std::byte> bytes) {
    waited_request r;
    iovec entry{const_cast<std::byte*>(bytes.data()), bytes.size()};
    r.kind = io_kind::send;
    r.socket = c.streams(1)[0].handle();
    r.buffers = &entry;
    r.buffer_count = 1;
    c[1].home->io().submit(r);
    REQUIRE(c.until([&] { return r.ended_; }));
    REQUIRE(r.result.ok());
    REQUIRE(r.result.count() == bytes.size());
  }
  /// Says all of it, or what the member takes before it breaks its world.
  void say_while_it_lives(std::span<const std::byte> bytes) {
    const auto fd = static_cast<int>(c.streams(1)[0].handle());
    c.until([&] {
      const ssize_t taken =
          ::send(fd, bytes.data(), bytes.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
      if (taken > 0) bytes = bytes.subspan(static_cast<std::size_t>(taken));
      return bytes.empty() || !c[0].events.broken_by.empty();
    });
  }
  void say(const frame& f, std::size_t content = 0) {
    const auto header = encode(f);
    std::vector<std::byte> bytes(header.begin(), header.end());
    bytes.resize(bytes.size() + content, std::byte{0x77});
    say(bytes);
  }
  std::string answer() {
    c.until([&] { return !c[0].events.broken_by.empty(); }, std::chrono::seconds(2));
    return c[0].events.reason;
  }

  cluster c;
};

frame eager(std::uint64_t id, std::size_t bytes, std::uint64_t on = 0) {
  return {frame_kind::eager, dtype::uint8, 0, 0, on, id, 0, bytes};
}
frame offer(std::uint64_t id, std::size_t bytes) {
  return {frame_kind::offer, dtype::uint8, 0, 0, 0, id, 0, bytes};
}
frame about(frame_kind kind, std::uint64_t id, std::uint32_t generation = 0) {
  frame f;
  f.kind = kind;
  f.id = id;
  f.generation = generation;
  return f;
}
frame data(std::uint64_t id, std::uint32_t generation, std::uint64_t offset,
           std::size_t bytes) {
  return {frame_kind::data, dtype::uint8, 0, generation, 0, id, offset, bytes};
}

}  // namespace

TEST_SUITE("host hostile") {
  TEST_CASE(
      "garbage breaks with a protocol error that names the rank and what was wrong") {
    stranger s;
    const std::vector<std::byte> garbage(200, std::byte{0xEE});
    s.say(garbage);
    CHECK(s.answer() == "rank 1 sent an unknown kind of frame");
    CHECK(s.c[0].events.cause == cause::protocol_error);
    CHECK(s.c[0].events.broken_by.front() == 1);
  }

  TEST_CASE("a truncated frame is not a frame: only the end of the stream is reported") {
    stranger s;
    const auto bytes = encode(eager(1, 8));
    s.say(std::span(bytes).first(20));
    s.c.settle();
    CHECK(s.c[0].events.quiet());
    s.c.streams(1)[0].close();
    REQUIRE(s.c.until([&] { return !s.c[0].events.ended.empty(); }));
    CHECK(s.c[0].events.broken_by.empty());
  }

  TEST_CASE("more unasked data than the window allows is refused") {
    stranger s;
    s.say(eager(1, 30'000), 30'000);
    s.say(eager(2, 30'000), 30'000);
    s.c.settle();
    CHECK(s.c[0].events.quiet());
    s.say(eager(3, 30'000), 30'000);
    CHECK(s.answer() == "rank 1 sent more unreceived data than the window allows");
  }

  TEST_CASE("answers to what was never said are refused") {
    struct attempt {
      frame said;
      const char* verdict;
    };
    const std::vector<attempt> attempts{
        {about(frame_kind::pull, 1, 1), "a pull of a message that was not sent"},
        {about(frame_kind::unpull, 1, 1), "an unpull of a message that was not sent"},
        {about(frame_kind::taken, 1), "a message taken that was not sent"},
        {about(frame_kind::withdrawn, 1), "an answer to a withdrawal that was not made"},
        {about(frame_kind::withdraw, 1), "a message that was not announced"},
        {about(frame_kind::complete, 1, 1), "a message that was not announced"},
        {data(1, 1, 0, 8), "a message that was not announced"},
        {eager(2, 0), "a message out of sequence"},
        {about(frame_kind::left, 0), "an answer to a leave that was not made"},
        {{frame_kind::credit, dtype::uint8, 0, 0, 3, 0, 0, 64},
         "credit for an unknown lane"},
        {about(frame_kind::entered, 1), "an answer that was not asked for"},
        {about(frame_kind::returned, 1), "a message returned that was not sent"},
        {about(frame_kind::discarded, 1), "a message dropped that was not sent"},
        {{frame_kind::offer, dtype::uint8, 0, host::offer_granted, 0, 1, 0, 99'000},
         "a message without a window that was not asked for"},
        {{frame_kind::refuse, dtype::uint8, 0, 1, 2, 1, 0, 0},
         "a rank outside of the world"},
    };
    for (const attempt& a : attempts) {
      stranger s;
      s.say(a.said);
      CHECK(s.answer() == std::string("rank 1 sent ") + a.verdict);
    }
  }

  TEST_CASE("slices that were not asked for, do not follow or overrun are refused") {
    for (const int lie : {0, 1, 2, 3, 4}) {
      CAPTURE(lie);
      stranger s;
      std::vector<std::uint8_t> got(50'000, 0x44);
      receive_op r;
      s.say(offer(1, got.size()));
      if (lie != 0) receive(s.c, r, 0, 1, got);
      s.c.settle();
      if (lie == 0) s.say(data(1, 1, 0, 100));
      if (lie == 1) s.say(data(1, 1, 8, 100));
      if (lie == 2) s.say(data(1, 1, 0, got.size() + 1));
      if (lie == 3) s.say(data(1, 2, 0, 100));
      if (lie == 4) s.say(about(frame_kind::complete, 1, 1));
      CHECK(s.answer() != "");
      CHECK(s.c[0].events.cause == cause::protocol_error);
      CHECK_FALSE(r.ended());
    }
  }

  TEST_CASE("more credit than was used, and a taking before the end, are refused") {
    stranger s;
    std::uint64_t word = 1;
    send_op sent;
    send(s.c, sent, 0, 1, std::span(&word, 1));
    s.say({frame_kind::credit, dtype::uint8, 0, 0, 0, 2, 8, 72});
    CHECK(s.answer() == "rank 1 sent more credit than was used");

    stranger t;
    const auto large = pattern(100'000);
    send_op offered;
    send(t.c, offered, 0, 1, large);
    t.say(about(frame_kind::taken, 1));
    CHECK(t.answer() == "rank 1 sent a message taken that was not sent whole");
    CHECK_FALSE(offered.ended());
  }

  TEST_CASE("a message without a window is taken only where a receive was told of") {
    stranger s;
    const auto granted = [](std::uint64_t id) {
      frame f = eager(id, 100, 5);
      f.generation = host::eager_granted | host::eager_wants_taken;
      return f;
    };
    frame want;
    want.kind = frame_kind::want;
    want.on = 5;
    // No receive waits, so that nothing is told, however often it is asked.
    for (int i = 0; i < 3; ++i) s.say(want);
    std::vector<std::uint8_t> got(100);
    receive_op r;
    receive(s.c, r, 0, 1, got, 5);
    s.c.settle();
    s.say(granted(1), 100);
    REQUIRE(s.c.until([&] { return r.ended(); }));
    CHECK(r.done());
    CHECK(s.c[0].events.quiet());
    s.say(granted(2), 100);
    CHECK(s.answer() == "rank 1 sent a message without a window that was not asked for");
  }

  TEST_CASE("a message that was sent within the window cannot be returned") {
    stranger s;
    const auto large = pattern(100'000);
    send_op offered;
    send(s.c, offered, 0, 1, large);
    s.say(about(frame_kind::returned, 1));
    CHECK(s.answer() == "rank 1 sent a message returned that was not granted");
    CHECK_FALSE(offered.ended());
  }

  TEST_CASE("readiness for what does not wait, and its end unasked, do no harm") {
    stranger s;
    frame f;
    f.kind = frame_kind::ready;
    f.on = 77;
    for (int i = 0; i < 50; ++i) s.say(f);
    f.on = 0;
    f.generation = host::ready_for_fresh_lanes;
    s.say(f);
    f = {};
    f.kind = frame_kind::relaxed;
    s.say(f);
    s.c.settle();
    CHECK(s.c[0].events.quiet());
    CHECK(s.c.at(0).lanes().empty());
  }

  TEST_CASE("law 4: a large message cannot be accepted before a receive has it") {
    stranger s;
    const auto large = pattern(100'000);
    send_op offered;
    send(s.c, offered, 0, 1, large);
    s.say(about(frame_kind::pull, 1, 1));
    s.c.settle();
    s.say({frame_kind::accepted, dtype::uint8, 0, 0, 0, 1, 0, 100'000});
    CHECK(s.answer() == "rank 1 sent a message accepted that it may not keep");
    CHECK_FALSE(offered.ended());
  }

  TEST_CASE("a peer that sends and never reads its answers is refused at the window") {
    stranger s{host_backend_options()};
    std::uint64_t id = 0;
    // What is not read fills the sockets first, then a mebibyte here.
    for (int rounds = 0; rounds < 400 && s.c[0].events.broken_by.empty(); ++rounds) {
      std::vector<std::byte> batch;
      for (int i = 0; i < 5'000; ++i) {
        ++id;
        frame message = eager(id, 0, 7 + id % 9);
        message.generation = host::eager_wants_taken;
        for (const frame& f : {message, about(frame_kind::withdraw, id)}) {
          const auto header = encode(f);
          batch.insert(batch.end(), header.begin(), header.end());
        }
      }
      s.say_while_it_lives(batch);
      // Credit that is told by a timer is known without being read.
      const auto later = std::chrono::steady_clock::now() + std::chrono::milliseconds(25);
      while (std::chrono::steady_clock::now() < later) s.c.turn();
    }
    CHECK(s.answer() == "rank 1 sent more unreceived data than the window allows");
  }

  TEST_CASE("a peer that refuses collectives without end is refused at the limit") {
    stranger s;
    for (std::uint64_t id = 1; id <= 1024; ++id) s.say(about(frame_kind::refuse, id));
    s.c.settle();
    CHECK(s.c[0].events.quiet());
    s.say(about(frame_kind::refuse, 1025));
    CHECK(s.answer() == "rank 1 sent more refusals than may be unanswered");
    CHECK(s.c[0].events.cause == cause::protocol_error);
  }

  TEST_CASE(
      "words of collectives that a stranger made up break the world, nothing else") {
    for (const std::uint64_t word : {~std::uint64_t{0}, std::uint64_t{1}}) {
      stranger s;
      test_operation op(operation_kind::barrier);
      s.c.at(0).start(op);
      s.say({frame_kind::ask, dtype::uint8, 0, 0, 0, 1, word, 0});
      CHECK(s.answer() != "");
      CHECK(s.c[0].events.cause == cause::mismatch);
    }
  }

  TEST_CASE("a peer that leaves with offers open takes them along") {
    stranger s;
    std::vector<std::uint8_t> got(50'000);
    receive_op r;
    receive(s.c, r, 0, 1, got);
    s.say(offer(1, got.size()));
    s.c.settle();
    s.say(about(frame_kind::leave, 0));
    REQUIRE(s.c.until([&] { return r.ended(); }));
    CHECK(r.failed(cause::closed));
    CHECK(s.c[0].events.left == std::vector<rank_t>{1});
  }
}
