// A hostile process on this host: whatever it does to the memory that it shares with us
// harms its own world only, by a named error.
#include "any_size.hpp"
#include "process_fixture.hpp"

namespace manyworlds::process_tests {

TEST_SUITE_BEGIN("process");

namespace {

/// Messages of all kinds there and back until the world is over: in a cell, in a chunk,
/// read from the sender's memory. Whatever comes back, and whether anything does.
task<void> converse(world& w, event& has_begun) {
  const std::vector<std::uint8_t> out(std::size_t{1} << 17);
  std::vector<std::uint8_t> in(std::size_t{1} << 20);
  int answers = 0;
  auto exchange = [&](std::size_t size) -> task<void> {
    co_await w.send(std::span(out).first(size), to(1)).within(200ms);
    const std::span<std::uint8_t> answer = co_await take_any(w, 1, in, 200ms);
    if (answer.size() == size && ++answers == 8) has_begun.set();
  };
  while (w.state() == world_state::up) {
    for (const std::size_t size : {16U, 800U, 8000U, 1U << 17}) {
      (void)co_await outcome(exchange(size));
      // A broken world answers at once.
      co_await yield();
    }
  }
}

/// A leader with one world with a hostile member, and one with an honest one.
struct between {
  explicit between(engine_kind e, const std::vector<std::string>& settings = {})
      : here(e),
        hostile(here.worker("evil", settings)),
        honest(here.worker("good")),
        us(here) {}

  void meet() {
    evil = us.form("evil");
    good = us.form("good");
    honest.order("echo good 0 64");
    us.run(ping(good, 1, 10));
  }
  started<void> start_conversation() {
    hostile.order("answer evil 0");
    auto talking = us.rt.start(converse(evil, in_conversation));
    us.run(until(in_conversation));
    return talking;
  }
  failure kill_in(started<void> conversation) {
    hostile.kill();
    const failure why = us.broken(evil);
    us.finish(conversation);
    check_undisturbed(100ms);
    return why;
  }
  void misbehave(const std::string& order) {
    hostile.order(order);
    hostile.expect("at it");
  }
  /// The honest world goes on while the other may do its worst.
  void check_undisturbed(duration span) {
    for (const auto until = clock::now() + span; clock::now() < until;)
      CHECK(us.run(ping(good, 1, 20)) < no_stall);
    CHECK(good.state() == world_state::up);
    CHECK_FALSE(good.is_suspect(1));
  }

  site here;
  process hostile;
  process honest;
  event in_conversation;
  leader us;
  world evil;
  world good;
};

}  // namespace

TEST_CASE("law 11: scribbles over the shared memory harm no world but the scribbler's") {
  const char* const parts[] = {"all",   "header", "wake_ups", "beats",
                               "slabs", "offers", "rings",    "chunks"};
  unsigned seed = 1;
  for (const engine_kind e : engines()) {
    CAPTURE(name_of(e));
    for (const std::string part : parts) {
      CAPTURE(part);
      between b(e);
      b.meet();
      const auto talking = b.start_conversation();
      b.misbehave("scribble " + part + " " + std::to_string(seed++));
      b.check_undisturbed(500ms);
      MESSAGE(part << ": "
                   << (b.evil.state() == world_state::up ? std::string("up")
                                                         : b.evil.failure().text()));
      // What hurts it at once, and what only makes it useless.
      if (part == "rings") CHECK(b.us.broken(b.evil).cause != cause::none);
      CHECK(b.kill_in(talking).cause != cause::none);
      // Its name is free for an honest one.
      process better = b.here.worker("evil");
      better.order("echo evil 0 64");
      b.evil = b.us.form("evil");
      b.us.run(ping(b.evil, 1, 10));
    }
  }
}

TEST_CASE("law 11: cells that change while they are read end their world, by name") {
  for (const engine_kind e : engines()) {
    CAPTURE(name_of(e));
    // A change may say what a liar may say, such as another lane, or less credit: then
    // nothing more comes of the world, and it is tried again.
    bool was_named = false;
    for (int attempt = 0; attempt < 8 && !was_named; ++attempt) {
      between b(e);
      b.meet();
      const auto talking = b.start_conversation();
      b.misbehave("flip");
      b.check_undisturbed(500ms);
      const failure f = b.kill_in(talking);
      was_named = f.cause == cause::protocol_error;
      CHECK((was_named || f.cause == cause::peer_died));
    }
    CHECK(was_named);
  }
}

TEST_CASE("law 11: an offer of memory that is not there ends its world, by name") {
  if (testing::reading_is_refused_here()) return;
  for (const engine_kind e : engines()) {
    CAPTURE(name_of(e));
    std::vector<char> into(std::size_t{8} << 20);
    between b(e);
    b.meet();
    b.hostile.order("unmapped evil 0 " + std::to_string(into.size()));
    auto receive = [&](world& w) -> task<failure> {
      co_return (co_await outcome(w.recv(into, from(1)))).error();
    };
    const failure f = b.us.run(receive(b.evil));
    CHECK(f.cause == cause::protocol_error);
    CHECK(f.rank == 1);
    CHECK(f.detail.find("memory that is not there") != std::string::npos);
    // What is there was read, but for what the copy thread may not have begun.
    CHECK(std::count(into.begin(), into.end(), 1) > 0);
    CHECK(into.back() == 0);
    b.check_undisturbed(300ms);
  }
}

TEST_CASE("a peer that no longer reads holds up only those who wait for it") {
  for (const engine_kind e : engines()) {
    CAPTURE(name_of(e));
    const std::vector<std::uint64_t> message(1 << 17);
    between b(e);
    b.us.patience.drain = 1s;
    b.meet();
    b.misbehave("deaf");
    auto give_up = [&](world& w) -> task<failure> {
      co_return (co_await outcome(w.send(message, to(1)).within(300ms))).error();
    };
    CHECK(b.us.run(give_up(b.evil)).cause == cause::timed_out);
    CHECK(b.evil.state() == world_state::up);
    b.check_undisturbed(300ms);
    const auto begun = clock::now();
    b.us.run(b.evil.leave());
    CHECK(clock::now() - begun < 5s);
    b.check_undisturbed(100ms);
  }
}

TEST_CASE("a peer that stops reading in mid-transfer, and lives, is told as stalled") {
  const std::vector<char> message(std::size_t{64} << 20, 1);
  // It asks for payloads.
  between b(engines().back(), {"refuse=process_vm_readv"});
  b.us.patience.stall = 1s;
  b.meet();
  auto send = [&](world& w) -> task<failure> {
    co_return (co_await outcome(w.send(message, to(1)).within(20s))).error();
  };
  b.hostile.order("deafen evil 0 " + std::to_string(message.size()));
  auto sending = b.us.rt.start(send(b.evil));
  b.hostile.expect("at it");
  b.check_undisturbed(300ms);
  const failure f = b.us.finish(sending);
  CHECK(f.cause == cause::stalled);
  CHECK(f.rank == 1);
  b.check_undisturbed(300ms);
}

TEST_SUITE_END();

}  // namespace manyworlds::process_tests
