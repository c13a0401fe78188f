// What survivors tell each other, some of it made up, and what it must hold.
#include "manyworlds/store/run_on.hpp"
#include "world/shrink_protocol.hpp"
#include "world_fixture.hpp"

namespace manyworlds::world_tests {

TEST_SUITE_BEGIN("world");

namespace {

/// A world of three; what one says can be made up.
class talkers : public trio {
 public:
  explicit talkers(world_options options)
      : trio(std::move(options)), base(worlds[0].view()) {}
  /// The successor that its lowest member may propose.
  [[nodiscard]] world_view view_of(const std::vector<rank_t>& ranks) const {
    world_view v = base;
    v.members.clear();
    for (const rank_t r : ranks) v.members.push_back(base.member(r));
    v.id = 4711;
    v.epoch = shrink_protocol::epoch_of(base, ranks.front(), base.epoch);
    return v;
  }
  void say(std::size_t from, rank_t to, const control_message& what) {
    auto saying = [](runtime_core& rt, process_address who, bytes m) -> task<void> {
      link_hold way = co_await rt.peers().reach(who, rt.service().now() + 5s);
      way->send(m);
      // The link lasts until it has been read.
      co_await sleep_for(10ms);
    };
    runtime_core& rt = access::core(nodes[from].rt);
    auto there = [](runtime_core& r, task<void> t) -> task<void> {
      co_await run_on(r.service(), std::move(t));
    };
    nodes[from].run(there(rt, saying(rt, base.member(to), encode(what))));
  }

  world_view base;
};

bool tries_to_succeed(node& n) {
  const auto all = access::core(n.rt).worlds().snapshot();
  return std::any_of(all.begin(), all.end(), [](const auto& w) { return w->inherits(); });
}

bytes survivor_bytes(const survivor_message& m) { return encode(control_message(m)); }

survivor_message some_call() {
  survivor_message m;
  m.name = "pair";
  m.epoch = 1;
  m.base = 7;
  m.pending_votes = {{0, 2}};
  return m;
}

}  // namespace

TEST_CASE("who was ready for a successor and drops its world tells its pending votes") {
  talkers t({.name = "talkers", .form = 3s});
  auto ready = t.nodes[2].rt.start(why_not(t.worlds[2]));
  const auto limit = clock::now() + 2s;
  while (!tries_to_succeed(t.nodes[2]) && clock::now() < limit) {
    t.say(1, 2, successor_message{t.base.id, t.view_of({1, 2})});
  }
  REQUIRE(tries_to_succeed(t.nodes[2]));
  CHECK(t.nodes[2].finish(ready).cause == cause::not_joined);
  t.worlds[2] = world();
  // Rank 1, which does not call, may have gone on with rank 2.
  CHECK(t.nodes[0].run(why_not(t.worlds[0])).cause == cause::not_joined);
}

TEST_CASE(
    "who was told of a successor tells the others, when all that formed it are gone") {
  talkers t({.name = "talkers", .form = 10s});
  const auto begun = clock::now();
  auto one = t.nodes[1].rt.start(shrinking(t.worlds[1]));
  status_message committed;
  committed.base = t.base.id;
  committed.status = member_status::succeeded;
  committed.view = t.view_of({0, 1, 2});
  committed.epoch = committed.view.epoch;
  // Said before it listens, it is not heard.
  for (int times = 0; times < 10; ++times) t.say(0, 1, committed);
  t.worlds[0] = world();
  auto other = t.nodes[2].rt.start(shrinking(t.worlds[2]));
  const failure f = t.nodes[1].finish(one);
  const failure g = t.nodes[2].finish(other);
  REQUIRE_MESSAGE(!f, f.text());
  REQUIRE_MESSAGE(!g, g.text());
  CHECK(t.worlds[1].size() == 2);
  CHECK(t.worlds[1].epoch() > committed.epoch);
  CHECK(clock::now() - begun < 5s);
}

TEST_CASE("what survivors say is checked: ranks out of order, too many pending votes") {
  const bytes good = survivor_bytes(some_call());
  CHECK(encode(decode_control(good)) == good);
  survivor_message bad = some_call();
  for (const std::vector<rank_t>& ranks :
       std::vector<std::vector<rank_t>>{{}, {1, 1}, {2, 0}, {-1}, {4096}}) {
    bad.pending_votes = {ranks};
    CHECK_THROWS_AS((void)decode_control(survivor_bytes(bad)), wire_error);
  }
  bad.pending_votes.assign(survivor_message::most_pending_votes + 1, {0});
  CHECK_THROWS_AS((void)decode_control(survivor_bytes(bad)), wire_error);
  status_message parting;
  parting.pending_votes = {{0, 2}};
  const bytes said = encode(control_message(parting));
  CHECK(encode(decode_control(said)) == said);
  parting.pending_votes = {{2, 0}};
  CHECK_THROWS_AS((void)decode_control(encode(control_message(parting))), wire_error);
  bytes cut = good;
  cut.pop_back();
  CHECK_THROWS_AS((void)decode_control(cut), wire_error);
}

TEST_CASE("a break must have a cause, or operations would end as if nothing had failed") {
  broken_message broken;
  broken.world_id = 1;
  broken.why = cause::peer_died;
  CHECK_NOTHROW((void)decode_control(encode(control_message(broken))));
  broken.why = cause::none;
  CHECK_THROWS_AS((void)decode_control(encode(control_message(broken))), wire_error);
}

TEST_SUITE_END();

}  // namespace manyworlds::world_tests
