// Signs of life of peers on this host: a word in the memory that both share.
#include "link/beat_line.hpp"

#include <future>
#include <thread>

#include "lying_local_peer.hpp"

namespace manyworlds::link_tests {

TEST_SUITE_BEGIN("beat");

namespace {

/// A span of time that is measured, not waited for: several times the limit of silence.
constexpr duration idle_span = 2s;

shm::beat_line& line(shm::shm_segment& segment, int side) {
  return *reinterpret_cast<shm::beat_line*>(segment.at(shm::offset::beat(side)));
}

/// How long ago the victim has heard of it; as the runtime's own clock has it.
duration silence_of(const liar& peer, node& victim) {
  return on_service(victim, [&](runtime_core& core) -> task<duration> {
    co_return core.service().now() - core.peers().last_heard(peer.id()).value();
  });
}

/// A liar that shares memory with the victim, and both know it.
class near_liar : public liar {
 public:
  near_liar(node& victim, unsigned char id) : liar(victim, id) {
    pair_with(victim);
    say(outcome_kind, paired_outcome());
    REQUIRE(eventually([&] { return local_links(victim) == 1; }));
  }
};

}  // namespace

TEST_CASE("a beat is seen once, with the progress it came with") {
  shm::beat_line a{};
  shm::beat_line b{};
  shm::beat_exchange one(a, b);
  shm::beat_exchange other(b, a);
  CHECK_FALSE(other.poll());
  one.beat({7, {}});
  CHECK(other.poll()->progress == 7);
  CHECK_FALSE(other.poll());
  one.beat({7, {}});
  one.beat({9, cpu_binding::to(3)});
  CHECK(other.poll()->cpu == cpu_binding::to(3));
  CHECK_FALSE(one.poll());
}

TEST_CASE("a scribbled line is a sign of life, and the next true beat is another") {
  shm::beat_line a{};
  shm::beat_line b{};
  shm::beat_exchange liar(a, b);
  shm::beat_exchange victim(b, a);
  for (const std::uint64_t lie : {~std::uint64_t{0}, std::uint64_t{1} << 63}) {
    a.beats = lie;
    a.progress = ~lie;
    CHECK(victim.poll()->progress == ~lie);
    CHECK_FALSE(victim.poll());
    liar.beat({3, {}});
    CHECK(victim.poll()->progress == 3);
  }
  // What the liar does to the victim's own line harms the liar's sight of it only.
  b.beats = 1000;
  victim.beat({1, {}});
  CHECK(b.beats == 1);
}

TEST_CASE("law 7: an idle link between processes of one host costs no packet") {
  node a({.heartbeat = 20ms});
  near_liar peer(a, 1);
  // What was sent before it was known.
  while (peer.hears(beat_kind, 100ms)) continue;
  const std::uint64_t before = line(peer.segment(), 1).beats;
  CHECK_FALSE(peer.hears(beat_kind, 400ms));
  CHECK(eventually([&] { return line(peer.segment(), 1).beats > before + 4; }));
}

TEST_CASE("a peer that shares no memory is sent beats") {
  node a({.heartbeat = 20ms});
  liar peer(a, 2);
  for (int beat = 0; beat < 3; ++beat) CHECK(peer.hears(beat_kind, 10s));
}

TEST_CASE("silence grows while a peer's word stands still, and ends with any change") {
  node a;
  near_liar peer(a, 3);
  for (const std::uint64_t word : {~std::uint64_t{0}, std::uint64_t{5}}) {
    CHECK(eventually([&] { return silence_of(peer, a) > 450ms; }));
    line(peer.segment(), 0).beats = word;
    CHECK(eventually([&] { return silence_of(peer, a) < 200ms; }));
  }
}

TEST_CASE("an idle world of two processes of one host outlives its limit of silence") {
  runtime_options often;
  often.heartbeat = 20ms;
  pair p({.name = "idle", .form = 10s, .suspect_after = 400ms, .broken_after = 800ms},
         often, often);
  REQUIRE(local_links(p.a) == 1);
  std::this_thread::sleep_for(idle_span);
  CHECK(p.wa.state() == world_state::up);
  CHECK(p.wb.state() == world_state::up);
  check_alive(p.a, p.wa, p.b, p.wb);
}

TEST_CASE("a beat that stands still breaks the world as silence") {
  runtime_options often;
  often.heartbeat = 20ms;
  pair p({.name = "still", .form = 10s, .suspect_after = 200ms, .broken_after = 400ms},
         often, often);
  REQUIRE(local_links(p.a) == 1);
  std::promise<void> may_go_on;
  // Its service thread is held, as that of a stopped process is.
  auto hold = [&](runtime_core&) -> task<void> {
    may_go_on.get_future().wait();
    co_return;
  };
  auto there = [&](node& n) -> task<void> {
    co_await run_on(n.rt.service(), hold(access::core(n.rt)));
  };
  auto held = p.b.rt.start(there(p.b));
  auto broken = [](world& w) -> task<failure> { co_return co_await w.broken(); };
  CHECK(p.a.run(broken(p.wa)).cause == cause::silent_peer);
  may_go_on.set_value();
  p.b.finish(held);
}

TEST_SUITE_END();

}  // namespace manyworlds::link_tests
