// Pairing on one host: what proves that two processes share it, and what follows.
#include "link/socket_pairing.hpp"

#include <doctest/doctest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstring>
#include <deque>
#include <vector>

#include "io/reactor_fixture.hpp"
#include "io/system_environment.hpp"

using namespace manyworlds;
using namespace manyworlds::shm;
using namespace manyworlds::testing;

TEST_SUITE_BEGIN("socket_pairing");

namespace {

incarnation drawn(environment& env) {
  std::array<std::byte, incarnation::size> raw{};
  env.fill_random(raw);
  return incarnation(raw);
}

/// One side: what it expects, and what came.
struct side final : pairing_listener {
  explicit side(reactor& r) : id(drawn(env)), local(r, env, id, *this) {}

  const pairing_nonces* expected_nonces(const incarnation& from) override {
    return from == expected_from ? &expected : nullptr;
  }
  void paired(const incarnation&, shared_parts parts) override {
    pairings.push_back(std::move(parts));
  }
  void log(std::string line) noexcept override { lines.push_back(std::move(line)); }

  void expect(const incarnation& from) {
    expected_from = from;
    expected = local.make_nonces();
  }

  system_environment env;
  incarnation id;
  incarnation expected_from;
  pairing_nonces expected;
  socket_pairing local;
  std::vector<shared_parts> pairings;
  std::vector<std::string> lines;
};

struct two_sides {
  explicit two_sides(engine_kind kind)
      : f(kind), listening(f), asking(f), receiving(f, listening.local.run()) {
    listening.expect(asking.id);
  }
  ~two_sides() {
    receiving.cancel();
    f.run_until([this] { return receiving.ended(); });
  }

  std::optional<shared_parts> request(const pairing_nonces& nonces) {
    return f.run(asking.local.request(listening.id, nonces, 2s, why_not));
  }

  reactor_fixture f;
  side listening;
  side asking;
  running<void> receiving;
  std::string why_not;
};

}  // namespace

TEST_CASE("two that know each other's nonces pair, and share memory and a socket") {
  FOR_EACH_ENGINE(kind) {
    two_sides m(kind);
    auto mine = m.request(m.listening.expected);
    REQUIRE_MESSAGE(mine, m.why_not);
    REQUIRE(m.listening.pairings.size() == 1);
    shared_parts& theirs = m.listening.pairings[0];
    CHECK(mine->segment->side() == 0);
    CHECK(theirs.segment->side() == 1);
    mine->segment->at(offset::beat(0))[0] = std::byte{42};
    CHECK(theirs.segment->at(offset::beat(0))[0] == std::byte{42});
    CHECK(::write(static_cast<int>(theirs.wake_socket.handle()), "x", 1) == 1);
    char heard = 0;
    CHECK(::read(static_cast<int>(mine->wake_socket.handle()), &heard, 1) == 1);
    CHECK(heard == 'x');
  }
}

TEST_CASE("what may be read of a peer is known when they have paired") {
  two_sides m(engine_kind::epoll);
  auto mine = m.request(m.listening.expected);
  REQUIRE_MESSAGE(mine, m.why_not);
  // Either this machine allows it and it reads the right bytes, or an errno says why not.
  CHECK(mine->memory.has_value() == (mine->memory_refusal == 0));
  if (!mine->memory) return;
  const char text[] = "far away";
  char copy[sizeof text]{};
  const iovec into{copy, sizeof copy};
  const iovec from{const_cast<char*>(text), sizeof text};
  CHECK(mine->memory->read({&into, 1}, {&from, 1}) == sizeof text);
  CHECK(std::string(copy) == text);
}

TEST_CASE("law 11: a request without its nonce pairs with no process") {
  FOR_EACH_ENGINE(kind) {
    two_sides m(kind);
    pairing_nonces guessed = m.listening.expected;
    guessed.request[0] ^= std::byte{1};
    CHECK_FALSE(m.request(guessed));
    CHECK_FALSE(m.why_not.empty());
    CHECK(m.listening.pairings.empty());
    REQUIRE(m.listening.lines.size() == 1);
    CHECK(m.listening.lines[0].find("does not know its nonce") != std::string::npos);
    // It disturbs no other process.
    CHECK(m.request(m.listening.expected));
  }
}

TEST_CASE(
    "law 11: a process that listens under a peer's name without its nonce is not the "
    "peer") {
  two_sides m(engine_kind::epoll);
  pairing_nonces nonces = m.listening.expected;
  nonces.reply[3] ^= std::byte{0x80};
  CHECK_FALSE(m.request(nonces));
  CHECK(m.why_not == "another process listens under its name");
}

TEST_CASE("a peer that does not listen here lives elsewhere") {
  two_sides m(engine_kind::epoll);
  system_environment env;
  std::string why_not;
  CHECK_FALSE(
      m.f.run(m.asking.local.request(drawn(env), m.listening.expected, 2s, why_not)));
  CHECK(why_not == "it is on another host");
}

TEST_CASE("law 9: a peer that accepts and says nothing holds a request up to its limit") {
  reactor_fixture f(engine_kind::epoll);
  side asking(f);
  side mute(f);  // listens, and does not run
  std::string why_not;
  CHECK_FALSE(
      f.run(asking.local.request(mute.id, mute.local.make_nonces(), 20ms, why_not)));
  CHECK(why_not.find("in time") != std::string::npos);
}

TEST_CASE(
    "law 11: garbage, no descriptors, and descriptors of another kind are refused") {
  two_sides m(engine_kind::epoll);
  std::string name = "manyworlds.";
  for (const std::byte b : m.listening.id.raw()) {
    constexpr char digits[] = "0123456789abcdef";
    name += digits[std::to_integer<unsigned>(b) >> 4];
    name += digits[std::to_integer<unsigned>(b) & 15];
  }
  int pipe_ends[2];
  REQUIRE(::pipe(pipe_ends) == 0);
  const std::vector<std::byte> garbage(200, std::byte{0x5a});
  const std::vector<std::byte> long_garbage(1000, std::byte{0x5a});
  for (const auto& packet : {garbage, long_garbage}) {
    local_socket stranger;
    REQUIRE(stranger.connect(name) == 0);
    CHECK(stranger.send(packet, pipe_ends) == 0);
    std::array<std::byte, 64> reply;
    passed_descriptors nothing;
    // It is hung up on.
    CHECK(m.f.run(stranger.receive(m.f, reply, nothing)).count() == 0);
  }
  ::close(pipe_ends[0]);
  ::close(pipe_ends[1]);
  CHECK(m.listening.pairings.empty());
  CHECK(m.request(m.listening.expected));
}

TEST_SUITE_END();
