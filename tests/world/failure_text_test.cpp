// What errors say: who did it, what each member entered, and where.
#include <deque>

#include "world_fixture.hpp"

namespace manyworlds::world_tests {

TEST_SUITE_BEGIN("failure texts");

namespace {

using floats = std::vector<float>;

bool has(const std::string& text, const std::string& part) {
  return text.find(part) != text.npos;
}
bool begins(const std::string& text, const std::string& part) {
  return text.compare(0, part.size(), part) == 0;
}

task<failure> sending(world& w) {
  const float x = 1;
  co_return (co_await outcome(w.send(std::span(&x, 1), to(1 - w.rank())))).error();
}
task<failure> receiving(world& w) {
  float x = 1;
  co_return (co_await outcome(w.recv(std::span(&x, 1), from(1 - w.rank())))).error();
}
task<failure> meeting(world& w) { co_return (co_await outcome(w.barrier())).error(); }
task<failure> reducing(world& w, std::size_t in, std::size_t out) {
  floats x(in), y(out);
  co_return (co_await outcome(w.all_reduce(x, y, sum))).error();
}

// On lines of their own, far from each other.
constexpr unsigned line_of_first = __LINE__ + 3;
task<failure> giving_first(world& w) {
  floats x(2, 1);
  co_return (co_await outcome(w.broadcast(x, root{0}))).error();
}
constexpr unsigned line_of_second = __LINE__ + 3;
task<failure> giving_second(world& w) {
  floats x(2, 2);
  co_return (co_await outcome(w.broadcast(x, root{1}))).error();
}

std::string at_line(unsigned line) {
  return "failure_text_test.cpp:" + std::to_string(line);
}

std::string text_after(const failure& f) {
  return f.world.str() + "@" + std::to_string(f.epoch) + ": ";
}

}  // namespace

TEST_CASE("after one's own leave() it is oneself that has left, in every operation") {
  pair p;
  auto waiting = p.a.rt.start(receiving(p.wa));
  auto met = p.a.rt.start(meeting(p.wa));
  p.a.run(p.wa.leave());
  std::vector<failure> all{p.a.finish(waiting),    p.a.finish(met),
                           p.a.run(sending(p.wa)), p.a.run(receiving(p.wa)),
                           p.a.run(meeting(p.wa)), p.a.run(reducing(p.wa, 2, 2))};
  for (const failure& f : all) {
    const std::string text = f.text();
    CAPTURE(text);
    CHECK(f.cause == cause::closed);
    CHECK(f.rank == 0);
    CHECK(begins(text, text_after(f) + "rank 0 (pid "));
    CHECK(has(text, ") has left, in "));
    CHECK(has(text, "(this member called leave())"));
    CHECK_FALSE(has(text, "rank 1 (pid"));
  }
}

TEST_CASE("what a peer's leave() closes names the peer, in every operation") {
  pair p;
  auto met = p.b.rt.start(meeting(p.wb));
  p.a.run(p.wa.leave());
  std::vector<failure> all{p.b.finish(met), p.b.run(sending(p.wb)),
                           p.b.run(receiving(p.wb)), p.b.run(meeting(p.wb)),
                           p.b.run(reducing(p.wb, 2, 2))};
  for (const failure& f : all) {
    const std::string text = f.text();
    CAPTURE(text);
    CHECK(f.cause == cause::closed);
    CHECK(begins(text, text_after(f) + "rank 0 (pid "));
    CHECK(has(text, ") has left, in "));
  }
}

TEST_CASE("a message that another member's failure ends names its own peer and lane") {
  memory_store store;
  std::deque<node> nodes(3);
  std::vector<world> worlds;
  std::vector<started<failure>> formed;
  for (rank_t r = 0; r < 3; ++r)
    worlds.emplace_back(nodes[static_cast<std::size_t>(r)].rt, store,
                        world_options{.name = "three", .rank = r, .size = 3});
  for (std::size_t r = 0; r < 3; ++r)
    formed.push_back(nodes[r].rt.start(forming(worlds[r])));
  for (std::size_t r = 0; r < 3; ++r) REQUIRE_FALSE(nodes[r].finish(formed[r]));

  auto send = [](world& w) -> task<failure> {
    const floats x(1 << 20);
    co_return (co_await outcome(w.send(x, to{1}, lane{7}))).error();
  };
  auto receive = [](world& w) -> task<failure> {
    floats x(8);
    co_return (co_await outcome(w.recv(x, from{1}).within(10s))).error();
  };
  auto look = [](world& w) -> task<failure> {
    co_return (co_await outcome(w.arrival(any))).error();
  };
  auto sent = nodes[0].rt.start(send(worlds[0]));
  auto received = nodes[0].rt.start(receive(worlds[0]));
  auto looked = nodes[0].rt.start(look(worlds[0]));
  worlds[2] = world();
  const failure s = nodes[0].finish(sent);
  const failure r = nodes[0].finish(received);
  const failure l = nodes[0].finish(looked);
  for (const failure& f : {s, r, l}) {
    const std::string text = f.text();
    CAPTURE(text);
    CHECK(f.rank == 2);
    CHECK(f.cause == cause::abandoned);
    CHECK(begins(text, "three@1 broken: rank 2 (pid "));
  }
  CHECK(s.operation_peer == 1);
  CHECK(s.operation_lane == lane{7});
  CHECK(has(s.text(), ", in send to rank 1 on lane 7"));
  CHECK(has(r.text(), ", in recv from rank 1 on lane 0"));
  CHECK(l.operation_peer == no_rank);
  CHECK_FALSE(l.operation_lane);
  CHECK(has(l.text(), ", in arrival"));
  CHECK_FALSE(has(l.text(), "lane"));
}

TEST_CASE(
    "roots that both only give break their world, though no other collective follows, "
    "and "
    "both say what each has entered and where") {
  for (const bool at_once : {true, false}) {
    pair p;
    auto first = p.a.rt.start(giving_first(p.wa));
    if (!at_once) (void)p.a.finish(first);
    auto second = p.b.rt.start(giving_second(p.wb));
    const failure at_a = p.a.run(p.wa.broken());
    const failure at_b = p.b.run(p.wb.broken());
    for (const failure& f : {at_a, at_b}) {
      const std::string text = f.text();
      CAPTURE(text);
      CHECK(f.cause == cause::mismatch);
      CHECK(has(text, "broadcast 1 (root 0) at "));
      CHECK(has(text, "broadcast 1 (root 1) at "));
      CHECK(has(text, at_line(line_of_first)));
      CHECK(has(text, at_line(line_of_second)));
      CHECK(has(text, "rank 0"));
      CHECK(has(text, "rank 1"));
      CHECK_FALSE(has(text, "\n"));
    }
    (void)p.b.finish(second);
  }
}

TEST_CASE("wrong arguments and a leave at once are a mismatch to who entered rightly") {
  for (const bool entered_first : {true, false}) {
    CAPTURE(entered_first);
    pair p;
    auto wrong_then_gone = [](world& w) -> task<failure> {
      const failure f = co_await reducing(w, 2, 3);
      // Whether its world breaks meanwhile is the other's doing.
      auto left = w.leave();
      (void)co_await outcome(std::move(left));
      co_return f;
    };
    auto late = [](world& w) -> task<failure> {
      (void)co_await w.broken();
      co_return co_await reducing(w, 2, 2);
    };
    auto right = p.b.rt.start(entered_first ? reducing(p.wb, 2, 2) : late(p.wb));
    CHECK(p.a.run(wrong_then_gone(p.wa)).cause == cause::invalid_argument);
    const failure f = p.b.finish(right);
    const std::string text = f.text();
    CAPTURE(text);
    CHECK(f.cause == cause::mismatch);
    CHECK(has(text, "rank 1 entered all_reduce 1 at "));
    CHECK(has(text, "rank 0 could not enter all_reduce 1 at "));
  }
}

TEST_CASE("a dump names the ranks that a collective waits for, as text and as JSON") {
  world_options options{.name = "pair", .form = 10s};
  options.collective_log = 100ms;
  pair p(options);
  auto waits = p.a.rt.start(meeting(p.wa));
  std::string text;
  const auto until = clock::now() + 20s;
  while (!has(text, "waits for rank 1 to enter it") && clock::now() < until) {
    text = p.a.rt.dump();
  }
  CHECK_MESSAGE(has(text, "in barrier 1 for "), text);
  CHECK_MESSAGE(has(text, "waits for rank 1 to enter it"), text);
  const std::string json = p.a.rt.dump_json();
  CHECK_MESSAGE(has(json, "\"kind\":\"barrier\",\"number\":1,"), json);
  CHECK_MESSAGE(has(json, "\"waits_for\":[1]"), json);
  CHECK_FALSE(has(p.b.rt.dump(), "waits for rank"));
  CHECK(!p.b.run(meeting(p.wb)));
  CHECK(!p.a.finish(waits));
  CHECK_FALSE(has(p.a.rt.dump(), "in barrier"));
}

TEST_SUITE_END();

}  // namespace manyworlds::world_tests
