// Meeting on one host: what proves that two processes share it, and what follows.
#include "link/same_host.hpp"

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

TEST_SUITE_BEGIN("same_host");

namespace {

incarnation drawn(environment& env) {
  std::array<std::byte, incarnation::size> raw{};
  env.fill_random(raw);
  return incarnation(raw);
}

/// One side: what it expects, and who came.
struct side final : same_host_events {
  explicit side(reactor& r) : id(drawn(env)), place(r, env, id, *this) {}

  const invitation* invited(const incarnation& from) override {
    return from == expected_from ? &expected : nullptr;
  }
  void visited(const incarnation&, shared_parts parts) override {
    visits.push_back(std::move(parts));
  }
  void remark(std::string line) noexcept override { remarks.push_back(std::move(line)); }

  void expect(const incarnation& from) {
    expected_from = from;
    expected = place.invite();
  }

  system_environment env;
  incarnation id;
  incarnation expected_from;
  invitation expected;
  same_host place;
  std::vector<shared_parts> visits;
  std::vector<std::string> remarks;
};

struct meeting {
  explicit meeting(engine_kind kind)
      : f(kind), host(f), visitor(f), receiving(f, host.place.run()) {
    host.expect(visitor.id);
  }
  ~meeting() {
    receiving.cancel();
    f.run_until([this] { return receiving.ended(); });
  }

  std::optional<shared_parts> visit(const invitation& words) {
    return f.run(visitor.place.visit(host.id, words, 2s, why_not));
  }

  reactor_fixture f;
  side host;
  side visitor;
  running<void> receiving;
  std::string why_not;
};

}  // namespace

TEST_CASE("two that know each other's words meet, and share memory and a bell") {
  FOR_EACH_ENGINE(kind) {
    meeting m(kind);
    auto mine = m.visit(m.host.expected);
    REQUIRE_MESSAGE(mine, m.why_not);
    REQUIRE(m.host.visits.size() == 1);
    shared_parts& theirs = m.host.visits[0];
    CHECK(mine->arena->side() == 0);
    CHECK(theirs.arena->side() == 1);
    mine->arena->at(offset::beat(0))[0] = std::byte{42};
    CHECK(theirs.arena->at(offset::beat(0))[0] == std::byte{42});
    CHECK(::write(static_cast<int>(theirs.bell.handle()), "x", 1) == 1);
    char heard = 0;
    CHECK(::read(static_cast<int>(mine->bell.handle()), &heard, 1) == 1);
    CHECK(heard == 'x');
    CHECK(mine->pid == ::getpid());
    CHECK(theirs.pid == ::getpid());
  }
}

TEST_CASE("what may be read of a peer is known when they have met") {
  meeting m(engine_kind::epoll);
  auto mine = m.visit(m.host.expected);
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

TEST_CASE("law 11: a visitor that does not know its word meets nobody") {
  FOR_EACH_ENGINE(kind) {
    meeting m(kind);
    invitation guessed = m.host.expected;
    guessed.visitor[0] ^= std::byte{1};
    CHECK_FALSE(m.visit(guessed));
    CHECK_FALSE(m.why_not.empty());
    CHECK(m.host.visits.empty());
    REQUIRE(m.host.remarks.size() == 1);
    CHECK(m.host.remarks[0].find("not invited") != std::string::npos);
    // It disturbs nobody else.
    CHECK(m.visit(m.host.expected));
  }
}

TEST_CASE(
    "law 11: whoever listens under a peer's name without its word is not the peer") {
  meeting m(engine_kind::epoll);
  invitation words = m.host.expected;
  words.host[3] ^= std::byte{0x80};
  CHECK_FALSE(m.visit(words));
  CHECK(m.why_not == "another process listens under its name");
}

TEST_CASE("a peer whose name nobody listens to lives elsewhere") {
  meeting m(engine_kind::epoll);
  system_environment env;
  std::string why_not;
  CHECK_FALSE(m.f.run(m.visitor.place.visit(drawn(env), m.host.expected, 2s, why_not)));
  CHECK(why_not == "it is on another host");
}

TEST_CASE("law 9: a host that accepts and says nothing holds a visitor up to its limit") {
  reactor_fixture f(engine_kind::epoll);
  side visitor(f);
  side mute(f);  // listens, and nobody runs it
  std::string why_not;
  CHECK_FALSE(f.run(visitor.place.visit(mute.id, mute.place.invite(), 20ms, why_not)));
  CHECK(why_not.find("in time") != std::string::npos);
}

TEST_CASE(
    "law 11: garbage, no descriptors, and descriptors of another kind are refused") {
  meeting m(engine_kind::epoll);
  std::string name = "manyworlds.";
  for (const std::byte b : m.host.id.raw()) {
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
  CHECK(m.host.visits.empty());
  CHECK(m.visit(m.host.expected));
}

TEST_SUITE_END();
