// Peers that are no peers: a bad connection ends alone, with a named reason, and valid
// ones get in.
#include <sys/resource.h>
#include <sys/wait.h>

#include "link_fixture.hpp"

namespace manyworlds::link_tests {

TEST_SUITE_BEGIN("link");

namespace {

socket_address endpoint_of(node& n) { return access::core(n.rt).self().endpoint; }

void check_still_serves(node& n, memory_store& store, const char* name) {
  node other;
  world wa(n.rt, store, {.name = name, .rank = 0, .size = 2, .form = 10s});
  world wb(other.rt, store, {.name = name, .rank = 1, .size = 2, .form = 10s});
  auto first = n.rt.start(forming(wa));
  auto second = other.rt.start(forming(wb));
  CHECK(!n.finish(first));
  CHECK(!other.finish(second));
  check_alive(n, wa, other, wb);
}

}  // namespace

TEST_CASE("a peer of another version is told both versions, and refused") {
  memory_store store;
  node n;
  const raw_peer peer(endpoint_of(n));
  peer.say_frame(hello_of(stranger(), connection_purpose::link, 7));
  const bytes answer = peer.hear_frame();
  REQUIRE(answer.size() == 3);
  CHECK(static_cast<hello_status>(answer[0]) == hello_status::wrong_version);
  std::uint16_t version = 0;
  std::memcpy(&version, answer.data() + 1, sizeof version);
  CHECK(version == hello::current_version);
  CHECK(peer.is_hung_up_on(5s));
  CHECK(n.log.has("version 7"));
  check_still_serves(n, store, "version");
}

TEST_CASE(
    "a peer without the secret is refused before it learns anything that proves it") {
  if (!can_prove()) {
    MESSAGE("not tested: this build has no libcrypto");
    return;
  }
  node n({.secret = "the job's"});
  {
    const raw_peer peer(endpoint_of(n));
    peer.say_frame(hello_of(stranger(), connection_purpose::link));
    const bytes answer = peer.hear_frame();
    REQUIRE(answer.size() == 3);
    CHECK(static_cast<hello_status>(answer[0]) == hello_status::wrong_secret);
    CHECK(peer.is_hung_up_on(5s));
  }
  {
    // Claims to have one, and cannot prove it.
    const raw_peer peer(endpoint_of(n));
    peer.say_frame(
        hello_of(stranger(), connection_purpose::link, hello::current_version, true));
    const bytes answer = peer.hear_frame();
    CHECK(static_cast<hello_status>(answer[0]) == hello_status::welcome);
    const std::string said(reinterpret_cast<const char*>(answer.data()), answer.size());
    CHECK(said.find("the job's") == std::string::npos);
    peer.say_frame(bytes(sizeof(secret_proof), std::byte{1}));
    const bytes verdict = peer.hear_frame();
    REQUIRE(verdict.size() == 1);
    CHECK(static_cast<hello_status>(verdict[0]) == hello_status::wrong_secret);
    CHECK(peer.is_hung_up_on(5s));
  }
  {
    // Gives the server's own proof back, as a mirror would.
    const raw_peer peer(endpoint_of(n));
    peer.say_frame(
        hello_of(stranger(), connection_purpose::link, hello::current_version, true));
    const bytes answer = peer.hear_frame();
    REQUIRE(answer.size() > sizeof(secret_proof));
    peer.say_frame(bytes(answer.end() - sizeof(secret_proof), answer.end()));
    const bytes verdict = peer.hear_frame();
    REQUIRE(verdict.size() == 1);
    CHECK(static_cast<hello_status>(verdict[0]) == hello_status::wrong_secret);
  }
}

TEST_CASE("garbage, huge and truncated first words end their own connection") {
  memory_store store;
  node n;
  const std::string http = "GET / HTTP/1.1\r\nHost: server\r\n\r\n";
  const raw_peer browser(endpoint_of(n));
  browser.say(std::as_bytes(std::span(http)));
  CHECK(browser.is_hung_up_on(5s));
  CHECK(n.log.has("does not speak this protocol"));

  const raw_peer huge(endpoint_of(n));
  const std::uint32_t size = ~0u;
  huge.say(std::as_bytes(std::span(&size, 1)));
  CHECK(huge.is_hung_up_on(5s));

  const raw_peer wrong_magic(endpoint_of(n));
  wrong_magic.say_frame(bytes(100, std::byte{0x55}));
  CHECK(wrong_magic.is_hung_up_on(5s));
  CHECK(n.log.has("not a hello"));

  // Every cut of a right hello, as one frame: too short to be read whole.
  const bytes whole = hello_of(stranger(), connection_purpose::link);
  for (std::size_t cut = 0; cut < whole.size(); cut += 7) {
    const raw_peer peer(endpoint_of(n));
    peer.say_frame(
        bytes(whole.begin(), whole.begin() + static_cast<std::ptrdiff_t>(cut)));
    CHECK(peer.is_hung_up_on(5s));
  }
  // Purposes that do not exist.
  bytes odd = whole;
  odd[6] = std::byte{200};
  const raw_peer purpose(endpoint_of(n));
  purpose.say_frame(odd);
  CHECK(purpose.is_hung_up_on(5s));
  check_still_serves(n, store, "garbage");
}

TEST_CASE(
    "a link that breaks the protocol ends with a named error, and nothing else does") {
  pair p;
  struct bad {
    const char* says;
    bytes frame;
  };
  const auto framed = [](std::uint32_t size, std::uint8_t kind, std::size_t body) {
    wire_writer out;
    out.put(size).put(kind).put_raw(bytes(body, std::byte{0xff}));
    return out.take();
  };
  const bad all[] = {
      {"kind 77", framed(4, 77, 4)}, {"4294967295 bytes", framed(~0u, 1, 0)},
      {"", framed(3, 0, 3)},         {"", framed(64, 1, 64)},
      {"", framed(0, 1, 0)},
  };
  unsigned char id = 20;
  for (const bad& each : all) {
    const raw_peer peer(endpoint_of(p.a));
    REQUIRE(greet(peer, stranger(id++), connection_purpose::link));
    peer.say(each.frame);
    CHECK(peer.is_hung_up_on(5s));
  }
  // A data connection for a world that is not, and a question that makes no sense.
  const raw_peer data(endpoint_of(p.a));
  REQUIRE(greet(data, stranger(id++), connection_purpose::data));
  data.say(bytes(1000, std::byte{0xff}));
  const raw_peer query(endpoint_of(p.a));
  REQUIRE(greet(query, stranger(id++), connection_purpose::query));
  query.say_frame(bytes(100, std::byte{0xff}));
  CHECK(query.is_hung_up_on(5s));
  check_alive(p.a, p.wa, p.b, p.wb);
}

TEST_CASE("a stranger cannot break a world, nor join it in a member's name") {
  pair p;
  const raw_peer peer(endpoint_of(p.a));
  REQUIRE(greet(peer, stranger(), connection_purpose::link));
  broken_message lie;
  lie.world_id = p.wa.view().id;
  lie.why = cause::broken_by_user;
  lie.culprit = 1;
  const bytes body = encode(control_message(lie));
  wire_writer out;
  out.put(static_cast<std::uint32_t>(body.size())).put(std::uint8_t{1}).put_raw(body);
  peer.say(out.view());
  rollback_message other;
  other.world_id = p.wa.view().id;
  const bytes second = encode(control_message(other));
  wire_writer again;
  again.put(static_cast<std::uint32_t>(second.size()))
      .put(std::uint8_t{1})
      .put_raw(second);
  // Behind it a frame that ends the link, so that both were read when it has ended.
  again.put(std::uint32_t{0}).put(std::uint8_t{99});
  peer.say(again.view());
  CHECK(peer.is_hung_up_on(5s));
  CHECK(p.wa.state() == world_state::up);
  check_alive(p.a, p.wa, p.b, p.wb);
}

TEST_CASE(
    "silent strangers are hung up on after a while, and hundreds of them keep no peer "
    "out") {
  memory_store store;
  node n;
  std::vector<raw_peer> silent;
  for (int i = 0; i < 300; ++i) silent.emplace_back(endpoint_of(n));
  // Half a hello each.
  for (const raw_peer& peer : silent) peer.say(bytes(2, std::byte{1}));
  node other;
  world wa(n.rt, store, {.name = "crowd", .rank = 0, .size = 2, .form = 10s});
  world wb(other.rt, store, {.name = "crowd", .rank = 1, .size = 2, .form = 10s});
  auto first = n.rt.start(forming(wa));
  auto second = other.rt.start(forming(wb));
  CHECK(!n.finish(first));
  CHECK(!other.finish(second));
  check_alive(n, wa, other, wb);
  CHECK(silent.front().is_hung_up_on(10s));
  CHECK(silent.back().is_hung_up_on(10s));
}

// UBSan looks at memory through a pipe, and accuses everything when it cannot make one.
#if defined(__has_feature)
#if __has_feature(undefined_behavior_sanitizer)
#define NEEDS_DESCRIPTORS_ITSELF 1
#endif
#endif
#if !defined(NEEDS_DESCRIPTORS_ITSELF)
TEST_CASE(
    "without descriptors no peer gets in that needs one, no world breaks; with some "
    "again, every peer does") {
  for (const bool shared : {false, true}) {
    CAPTURE(shared);
    // In a child: the limit is the process's.
    const pid_t child = ::fork();
    REQUIRE(child >= 0);
    if (child == 0) {
      int wrong = 0;
      {
        memory_store store;
        node a({.shared_memory = shared});
        node b({.shared_memory = shared});
        const auto form = [&](const char* name, duration limit, world& wa, world& wb) {
          wa = world(a.rt, store, {.name = name, .rank = 0, .size = 2, .form = limit});
          wb = world(b.rt, store, {.name = name, .rank = 1, .size = 2, .form = limit});
          auto first = a.rt.start(forming(wa));
          auto second = b.rt.start(forming(wb));
          return first.wait_for(20s) && second.wait_for(20s) && !first.get() &&
                 !second.get();
        };
        world wa;
        world wb;
        wrong += !form("before", 10s, wa, wb);
        rlimit before{};
        ::getrlimit(RLIMIT_NOFILE, &before);
        rlimit low = before;
        low.rlim_cur = static_cast<rlim_t>(::dup(0));
        ::close(static_cast<int>(low.rlim_cur));
        ::setrlimit(RLIMIT_NOFILE, &low);
        world na;
        world nb;
        // A slot in memory that is shared already needs none.
        wrong += 2 * (form("without", 500ms, na, nb) != shared);
        wrong += 4 * ((na.failure().cause == cause::none) != shared);
        ::setrlimit(RLIMIT_NOFILE, &before);
        wrong += 8 * (wa.state() != world_state::up || wb.state() != world_state::up);
        wrong += 16 * !form("after", 10s, na, nb);
      }
      ::_exit(wrong);
    }
    int status = -1;
    ::waitpid(child, &status, 0);
    CHECK(WIFEXITED(status));
    CHECK(WEXITSTATUS(status) == 0);
  }
}
#endif

TEST_SUITE_END();

}  // namespace manyworlds::link_tests
